"""Workers train models with trees like one process: blended models, and networks that learn coarse buckets."""

from __future__ import annotations

import pytest
from tests.distributed.test_runs import QUICK, check_same_model, plan, run_all
from tests.helpers.trees import SCHEMA, log_of

import fm2

MODELS = {"fmfm": {}, "deepfm": {"hidden": [8]}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data"
    fm2.prepare(log_of(1500), SCHEMA, path)
    return path


def test_two_workers_make_the_model_of_one_process(data, tmp_path):
    settings = {name: {"model": name, "epochs": 2, **own} for name, own in MODELS.items()}
    run_all(2, plan(tmp_path, data, *({"out": name, **own} for name, own in settings.items())))
    for name, own in settings.items():
        run = fm2.train(data=data, out=tmp_path / f"single-{name}", **{**QUICK, **own})
        check_same_model(run.path, tmp_path / name)
        assert ("tree_share" in run.metrics) == (name == "fmfm")
