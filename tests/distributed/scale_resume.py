"""Three workers resume a run of two."""

from __future__ import annotations

from tests.distributed.test_runs import check_same_model, plan, run_all
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log

import fm2

RUN = {"model": "fmfm", "field_dropout": 0.1, "value_dropout": 0.1}


def test_three_workers_resume_a_run_of_two(tmp_path):
    fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, tmp_path / "data")
    whole, half = ({"out": name, "epochs": epochs, **RUN} for name, epochs in (("whole", 2), ("half", 1)))
    run_all(2, plan(tmp_path, tmp_path / "data", whole, half))
    run_all(3, plan(tmp_path, tmp_path / "data", {**half, "epochs": 2, "resume": True}))
    check_same_model(tmp_path / "whole", tmp_path / "half")
