"""Ray Train: workers are killed at random moments, Ray restarts them, and the model is that of undisturbed workers."""

from __future__ import annotations

import os
import random
import time

import pytest
from tests.distributed.test_runs import QUICK, check_same_model
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.random_kills import command_of, descendants, kill_at
from tests.helpers.ray_loop import with_checkpoints
from tests.helpers.workers import ROOT

import fm2
from fm2.artifacts.run_directory import HISTORY

pytestmark = pytest.mark.filterwarnings("ignore")
KILLS = 20
RUN = {"model": "fmfm", "epochs": 24, "field_dropout": 0.1, "value_dropout": 0.1}


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """A function that trains with two workers of Ray Train."""
    ray = pytest.importorskip("ray")  # not when pytest looks for doctests
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    storage = tmp_path_factory.mktemp("ray")

    def fit_two_workers(data, out):
        TorchTrainer(
            with_checkpoints,
            train_loop_config={"data": str(data), "out": str(out), "time_limit": 60, **QUICK, **RUN},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=str(storage), failure_config=FailureConfig(max_failures=3)),
        ).fit()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TRAIN_METRICS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        try:
            yield fit_two_workers
        finally:
            ray.shutdown()


def workers():
    """Return the processes of the training's workers; Ray names a process after what it runs."""
    return [each for each in descendants(os.getpid()) if "RayTrainWorker" in command_of(each)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, fit):
    """The directory of an undisturbed job, and the seconds that it took."""
    path = tmp_path_factory.mktemp("undisturbed")
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, path / "data")
    begun = time.monotonic()
    fit(path / "data", path / "run")
    return path, time.monotonic() - begun


@pytest.mark.parametrize("number", range(KILLS))
def test_ray_restarts_a_killed_worker_and_the_result_is_the_same(undisturbed, fit, tmp_path, number):
    (path, seconds), chance = undisturbed, random.Random(number)
    moment = chance.uniform(0, seconds)
    for attempt in range(5):  # a job may be faster than the undisturbed one, and end before
        out = tmp_path / str(attempt)
        with kill_at(moment * 0.8**attempt, workers, out, chance) as kill:
            fit(path / "data", out)
        if kill.process is not None:
            break
    assert kill.process is not None
    print(f"killed after {kill.seconds:.2f} of {seconds:.2f} s: {kill.phase}")
    check_same_model(path / "run", out, tolerance=0)
    assert (out / HISTORY).read_text() == (path / "run" / HISTORY).read_text()
