"""Ray Train: a worker is killed, Ray restarts the job, and the model is that of undisturbed workers."""

from __future__ import annotations

import pytest
from tests.distributed.test_runs import QUICK, check_same_model, plan, run_all
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.ray_loop import killed_once
from tests.helpers.workers import ROOT

import fm2

RUN = {"model": "fmfm", "epochs": 2, "field_dropout": 0.1, "value_dropout": 0.1}


@pytest.mark.filterwarnings("ignore")
def test_ray_restarts_a_killed_worker_and_the_result_is_the_same(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")  # not when pytest looks for doctests
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    data = tmp_path / "data"
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, data)
    run_all(2, plan(tmp_path, data, {"out": "undisturbed", **RUN}))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = {"data": str(data), "out": str(tmp_path / "run"), "killed": str(tmp_path / "killed"), **QUICK, **RUN}
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        TorchTrainer(
            killed_once,
            train_loop_config=config,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=str(tmp_path / "ray"), failure_config=FailureConfig(max_failures=2)),
        ).fit()
    finally:
        ray.shutdown()
    assert (tmp_path / "killed").exists()
    check_same_model(tmp_path / "undisturbed", tmp_path / "run", tolerance=0)
