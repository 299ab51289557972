"""Ray Train: workers are killed at random moments, they are restarted, and the model is that of undisturbed workers."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from tests.distributed.test_runs import QUICK, check_same_model
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.random_kills import command_of, descendants, killed_at
from tests.helpers.ray_loop import KilledOnce, with_checkpoints
from tests.helpers.workers import ROOT

import fm2
from fm2.artifacts.run_directory import HISTORY
from fm2.distributed import fit

pytestmark = pytest.mark.filterwarnings("ignore")
JOBS, KILLS = 5, 4  # 20 kills in all
RUN = {"model": "fmfm", "epochs": 24, "field_dropout": 0.1, "value_dropout": 0.1}


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A function that trains with two workers of Ray Train."""
    ray = pytest.importorskip("ray")  # not when pytest looks for doctests
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    storage = tmp_path_factory.mktemp("ray")

    def train_with_two_workers(data, out, loop=with_checkpoints):
        trainer = TorchTrainer(
            loop,
            train_loop_config={"data": str(data), "out": str(out), "time_limit": 60, **QUICK, **RUN},
            torch_config=TorchConfig(backend="gloo"),
            # Ray 2.60 does not return the shares of workers if one is killed before all have called the function.
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1 / (JOBS * KILLS + 2)}),
            run_config=RunConfig(storage_path=str(storage), failure_config=FailureConfig(max_failures=KILLS)),
        )
        fit(trainer, restarts=KILLS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TRAIN_METRICS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # not 15: other processes would change the moments
        patch.setenv("PYTHONPATH", str(ROOT))
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        try:
            yield train_with_two_workers
        finally:
            ray.shutdown()


def workers():
    """Return the processes of the training's workers; Ray names a process after what it runs."""
    return [each for each in descendants(os.getpid()) if "RayTrainWorker" in command_of(each)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, train):
    """The directory of an undisturbed job, and the seconds that it took since its workers started."""
    path = tmp_path_factory.mktemp("undisturbed")
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, path / "data")
    begun: list[float] = []

    def watch():
        while not workers():
            time.sleep(0.02)
        begun.append(time.monotonic())

    threading.Thread(target=watch, daemon=True).start()
    train(path / "data", path / "run")
    return path, time.monotonic() - begun[0]


@pytest.mark.parametrize("seed", range(JOBS))
def test_ray_restarts_killed_workers_and_the_result_is_the_same(undisturbed, train, tmp_path, seed):
    (path, seconds), chance, left = undisturbed, random.Random(seed), KILLS
    for attempt in range(10):  # a job may end before all of its kills
        out = tmp_path / str(attempt)
        moments = [chance.uniform(0, seconds) for _ in range(left)]
        with killed_at(moments, workers, out, chance) as kills:
            train(path / "data", out)
        for kill in kills:
            print(f"killed {kill.seconds:.2f} s after the start: {kill.phase}")
        check_same_run(path / "run", out)
        left -= len(kills)
        if not left:
            return
    pytest.fail(f"{left} of {KILLS} kills came too late")


def test_a_worker_that_is_killed_while_it_loads_the_training_function_is_restarted(undisturbed, train, tmp_path):
    path, _ = undisturbed
    train(path / "data", tmp_path / "run", KilledOnce(tmp_path / "killed"))
    assert (tmp_path / "killed").exists()
    check_same_run(path / "run", tmp_path / "run")


def check_same_run(expected, run):
    """Check that two runs have the same model and history, bit for bit."""
    check_same_model(expected, run, tolerance=0)
    assert (run / HISTORY).read_text() == (expected / HISTORY).read_text()
