"""Runs of several workers: their files, resuming with other numbers of workers, kills and hangs."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.runs import load_arrays
from tests.helpers.workers import ROOT, run_workers, start_workers

import fm2
from fm2.artifacts.run_directory import CHECKPOINT, HISTORY, SHARDED_CHECKPOINT, read_history
from fm2.training.run import Run

QUICK = {"batch_size": 50, "evaluations_per_epoch": 2, "patience": 100, "threads": 1, "dim": 4, "seed": 3}
SCRIPT = ["-m", "tests.helpers.worker_runs"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data"
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, path)
    return path


def plan(path, data, *runs, **more):
    """Write what workers are to do, and return their command."""
    described = [{"data": str(data), **QUICK, **run, "out": str(path / run["out"])} for run in runs]
    path.mkdir(exist_ok=True)
    file = path / "plan.json"
    file.write_text(json.dumps({"runs": described, **more}))
    return [*SCRIPT, str(file)]


def run_all(count, command):
    for code, printed in run_workers(count, command):
        assert code == 0, printed


@pytest.fixture(scope="module")
def runs(tmp_path_factory, data):
    """Runs of two workers, and of one process with the same settings."""
    path = tmp_path_factory.mktemp("runs")
    deep = {"model": "deepfm", "epochs": 2, "hidden": [8], "network_dropout": 0.2}
    matrix = {"model": "fmfm", "field_dropout": 0.1, "value_dropout": 0.1}
    fm2.train("fmfm", data, path / "alone", epochs=1, **QUICK, field_dropout=0.1, value_dropout=0.1)
    run_all(
        2,
        plan(
            path,
            data,
            {"out": "deep", **deep},
            {"out": "matrix", "epochs": 2, **matrix},
            {"out": "half", "epochs": 1, **matrix},
            {"out": "alone", "epochs": 2, "resume": True, **matrix},
        ),
    )
    return path


def check_same_model(expected, actual, tolerance=1e-5):
    expected_arrays, expected_values = load_arrays(expected / "model.safetensors")
    arrays, values = load_arrays(actual / "model.safetensors")
    assert values["model"] == expected_values["model"]
    assert arrays.keys() == expected_arrays.keys()
    for name, array in expected_arrays.items():
        if name.startswith("model."):
            np.testing.assert_allclose(arrays[name], array, rtol=0, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def test_a_run_of_workers_is_a_run_like_any_other(runs, data, tmp_path):
    single = fm2.train("deepfm", data, tmp_path / "single", epochs=2, hidden=[8], network_dropout=0.2, **QUICK)
    check_same_model(tmp_path / "single", runs / "deep")
    run = Run.open(runs / "deep")
    assert run.evaluate(data)["log_loss"] == pytest.approx(single.evaluate(data)["log_loss"], abs=1e-5)
    model = fm2.compile(runs / "matrix", tmp_path / "model.fm2")
    assert fm2.load(model.path if hasattr(model, "path") else tmp_path / "model.fm2")
    history = read_history(runs / "deep" / HISTORY)
    expected = read_history(tmp_path / "single" / HISTORY)
    assert [e["best"] for e in history] == [e["best"] for e in expected]
    assert [e["auc"] for e in history] == pytest.approx([e["auc"] for e in expected], abs=1e-4)


def test_a_run_resumes_with_another_number_of_workers(runs, data):
    check_same_model(runs / "matrix", runs / "alone")  # begun by one process, resumed by two workers
    run_all(1, plan(runs, data, {"out": "half", "model": "fmfm", "epochs": 2, "resume": True}))  # begun by two
    check_same_model(runs / "matrix", runs / "half")
    assert read_history(runs / "half" / HISTORY)[0] == read_history(runs / "matrix" / HISTORY)[0]
    assert not (runs / "alone" / CHECKPOINT).exists()


def test_one_process_does_not_resume_a_run_of_workers(runs, data):
    with pytest.raises(fm2.Fm2Error, match="trained by several workers; resume it with fm2 train --workers"):
        fm2.train("deepfm", data, runs / "deep", resume=True)


def test_a_killed_worker_is_restarted_and_the_result_is_the_same(runs, data, tmp_path):
    run = {"out": "killed", "model": "fmfm", "epochs": 2, "field_dropout": 0.1, "value_dropout": 0.1}
    command = plan(tmp_path, data, run, checkpoint_seconds=0.0, disturb=[27, 1, "SIGKILL"])
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    done = subprocess.run(
        [sys.executable, *torchrun, *command], cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    check_same_model(runs / "matrix", tmp_path / "killed", tolerance=0)
    assert (tmp_path / "killed" / HISTORY).read_text() == (runs / "matrix" / HISTORY).read_text()
    assert json.loads((tmp_path / "killed" / SHARDED_CHECKPOINT).read_text())["position"]["steps"] > 27


def test_a_worker_that_hangs_is_named(data, tmp_path):
    command = plan(tmp_path, data, {"out": "hung", "model": "fm", "epochs": 2}, time_limit=3, disturb=[5, 1, "SIGSTOP"])
    first, second = start_workers(2, command)
    try:
        printed, _ = first.communicate(timeout=60)
        assert f"worker 1 (process {second.pid} on" in printed
        assert "did not respond within 3 seconds" in printed
        assert first.returncode != 0
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("model", "changes", "reason"),
    [
        ("ffm", {}, "ffm learns row by row"),
        ("poly2", {}, "poly2 learns row by row"),
        ("lr", {"optimizer": "ftrl"}, "learns row by row"),
        ("fm", {"optimizer": "dense_adam"}, "dense_adam updates all rows"),
        ("deepfm", {"batch_norm": True}, "batch_norm needs the whole batch"),
    ],
)
def test_models_that_workers_cannot_train_are_refused(model, changes, reason):
    from fm2.artifacts.settings import Settings
    from fm2.distributed.construction import check_distributed

    with pytest.raises(fm2.Fm2Error, match=reason):
        check_distributed(Settings.of(model, **changes))
