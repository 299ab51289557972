"""Studies on Ray: a search, and an interruption."""

from __future__ import annotations

import pytest
from tests.distributed.test_ray import cluster
from tests.studies.test_tuning import FIX, SPACE, outcomes

import fm2

pytestmark = pytest.mark.filterwarnings("ignore")
__all__ = ["cluster"]  # a fixture


def test_a_search_on_ray_has_the_same_trials(cluster, dataset, tmp_path):
    expected, found = (
        fm2.tune("lr", dataset, tmp_path / engine, trials=4, fix=FIX, space=SPACE, engine=engine)
        for engine in ("local", "ray")
    )
    assert outcomes(found) == outcomes(expected)


def test_an_interrupted_study_on_ray_writes_checkpoints(cluster, dataset, tmp_path):
    long = {"models": "lr", "epochs": 100_000, "patience": 100_000, "batch_size": 64, "threads": 1}

    def interrupt(report):
        if report.rows > 2 * report.epoch_rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fm2.compare(dataset, tmp_path / "table", engine="ray", watch=interrupt, **long)
    assert (tmp_path / "table" / "lr-0" / "checkpoint.safetensors").exists()
