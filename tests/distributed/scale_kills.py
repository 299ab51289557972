"""Workers of torchrun that are killed at random moments, or hang: the job restarts and ends with the same model."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from functools import partial

import pytest
from tests.distributed.test_runs import QUICK, SCRIPT, check_same_model
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.random_kills import command_of, descendants, killed_at
from tests.helpers.workers import ROOT

import fm2
from fm2.artifacts.run_directory import HISTORY

JOBS, KILLS = 5, 4  # 20 kills in all
RUN = {"model": "fmfm", "epochs": 24, "field_dropout": 0.1, "value_dropout": 0.1}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "4"]


def start(path, data, **disturbance):
    """Start two workers with torchrun; they write a checkpoint ten times a second."""
    path.mkdir(exist_ok=True)
    run = {"data": str(data), "out": str(path / "run"), **QUICK, **RUN}
    (path / "plan.json").write_text(
        json.dumps({"runs": [run], "checkpoint_seconds": 0.1, "time_limit": 60, **disturbance})
    )
    command = [sys.executable, *TORCHRUN, *SCRIPT, str(path / "plan.json")]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(job, seconds=180):
    """Return what a job printed, once it has ended without an error."""
    try:
        printed, _ = job.communicate(timeout=seconds)
    finally:
        for process in (*descendants(job.pid), job.pid):
            if job.poll() is None:
                subprocess.run(["kill", "-9", str(process)], check=False, capture_output=True)
    assert job.returncode == 0, printed
    return printed


def workers_of(job):
    return [each for each in descendants(job.pid) if SCRIPT[-1] in command_of(each)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The directory of an undisturbed job, and the seconds that it took since its workers started."""
    path = tmp_path_factory.mktemp("kills")
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, path / "data")
    job = start(path, path / "data")
    while not workers_of(job):
        assert job.poll() is None
        time.sleep(0.01)
    begun = time.monotonic()
    finish(job)
    return path, time.monotonic() - begun


@pytest.mark.parametrize("seed", range(JOBS))
def test_a_killed_job_ends_with_the_same_model(undisturbed, tmp_path, seed):
    (path, seconds), chance, left = undisturbed, random.Random(seed), KILLS
    for attempt in range(10):  # a job may end before all of its kills
        out = tmp_path / str(attempt)
        job = start(out, path / "data")
        moments = [chance.uniform(0, seconds) for _ in range(left)]
        with killed_at(moments, partial(workers_of, job), out / "run", chance) as kills:
            printed = finish(job)
        for kill in kills:
            print(f"killed {kill.seconds:.2f} s after the start: {kill.phase}")
        assert printed.count("exitcode: -9") >= min(len(kills), 1), printed  # as torchrun reports a killed worker
        check_same_model(path / "run", out / "run", tolerance=0)
        assert (out / "run" / HISTORY).read_text() == (path / "run" / HISTORY).read_text()
        left -= len(kills)
        if not left:
            return
    pytest.fail(f"{left} of {KILLS} kills came too late")


def test_a_hung_worker_is_named_and_the_job_restarts(undisturbed, tmp_path):
    path, _ = undisturbed
    begun = time.monotonic()
    printed = finish(start(tmp_path, path / "data", time_limit=4, disturb=[40, 1, "SIGSTOP"]))
    assert "train: worker 1 (process " in printed
    assert "did not respond within 4 seconds" in printed
    assert time.monotonic() - begun < 120  # torchrun waits 30 seconds for the stopped process before it kills it
    check_same_model(path / "run", tmp_path / "run", tolerance=0)
