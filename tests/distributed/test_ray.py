"""Ray on this machine: a training with two workers, and the runs of studies as tasks."""

from __future__ import annotations

import sys

import pytest
from tests.distributed.test_runs import QUICK, check_same_model
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.workers import ROOT
from tests.studies.test_jobs import UNREACHABLE, results

import fm2
from fm2 import Fm2Error
from fm2.distributed import fit, train_loop_per_worker

pytestmark = pytest.mark.filterwarnings("ignore")
RUN = {"model": "fmfm", "epochs": 1, **QUICK}


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two processors on this machine."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        try:
            yield
        finally:
            ray.shutdown()


def test_two_workers_of_ray_train_the_model_of_one_process(cluster, tmp_path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, tmp_path / "data")
    result = TorchTrainer(
        train_loop_per_worker,
        train_loop_config={"data": str(tmp_path / "data"), "out": str(tmp_path / "run"), **RUN},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "ray")),
    ).fit()
    run = fm2.train(data=tmp_path / "data", out=tmp_path / "alone", **RUN)
    check_same_model(tmp_path / "alone", tmp_path / "run")
    assert result.return_value["log_loss"] == pytest.approx(run.metrics["log_loss"], abs=1e-5)


class Trainer:
    """A trainer that raises errors, one per call, and then succeeds."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    def fit(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "result"


def controller_error(failure):
    return pytest.importorskip("ray.train").ControllerError(failure)


def lost_worker():
    return controller_error(pytest.importorskip("ray.exceptions").ActorDiedError())


def worker_error(cause):
    error = pytest.importorskip("ray.exceptions").RayTaskError("function", "its traceback", cause)
    return controller_error(error.as_instanceof_cause())


def test_a_trainer_whose_workers_die_as_they_start_is_called_again():
    trainer = Trainer(lost_worker(), worker_error(RuntimeError("connection closed")), lost_worker())
    assert fit(trainer) == "result"
    assert trainer.calls == 4


def test_a_trainer_is_called_again_only_so_many_times():
    trainer = Trainer(*(lost_worker() for _ in range(3)))
    with pytest.raises(type(lost_worker())):
        fit(trainer, restarts=2)
    assert trainer.calls == 3


def test_other_errors_of_a_trainer_are_raised_at_once():
    for error in worker_error(ImportError("no such module")), controller_error(TimeoutError()), ValueError():
        trainer = Trainer(error)
        with pytest.raises(type(error)):
            fit(trainer)
        assert trainer.calls == 1


def test_a_comparison_on_ray_has_the_same_results(cluster, dataset, tmp_path):
    options = {"models": "lr,fm,fmfm", "model_settings": UNREACHABLE, "threads": 1, "epochs": 2, "batch_size": 64}
    fm2.compare(dataset, tmp_path / "expected", **options)
    started = []
    fm2.compare(dataset, tmp_path / "table", engine="ray", on_start=started.append, **options)
    assert results(tmp_path / "table") == results(tmp_path / "expected")
    assert "the loss is" in results(tmp_path / "table")["rows"][1]["error"]
    assert started == ["lr-0", "fm-0", "fmfm-0"]


def test_a_missing_ray_is_named(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Fm2Error, match=r"requires the package 'ray'; install it in a clone .* '\.\[ray\]'"):
        fm2.compare(dataset, tmp_path / "table", "lr", engine="ray")
