"""Workers that are killed at random moments: the job restarts and ends with the same model."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from tests.distributed.test_runs import QUICK, SCRIPT, check_same_model, plan, run_all
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.workers import ROOT

import fm2

KILLS = 20
RUN = {"model": "fmfm", "epochs": 3, "field_dropout": 0.1, "value_dropout": 0.1}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("kills")
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, path / "data")
    run_all(2, plan(path, path / "data", {"out": "run", **RUN}))
    return path


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_job_ends_with_the_same_model(undisturbed, tmp_path, number):
    chance = random.Random(number)
    run = {"data": str(undisturbed / "data"), "out": str(tmp_path / "run"), **QUICK, **RUN}
    kill = [chance.uniform(0, 1.5), chance.randrange(2)]  # seconds after the first step, and which worker
    (tmp_path / "plan.json").write_text(
        json.dumps({"runs": [run], "checkpoint_seconds": 0.1, "kill_after": kill, "time_limit": 60})
    )
    done = subprocess.run(
        [sys.executable, *TORCHRUN, *SCRIPT, str(tmp_path / "plan.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_same_model(undisturbed / "run", tmp_path / "run", tolerance=0)
