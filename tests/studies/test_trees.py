"""``fm2 prepare --trees``: trees that are added always, or if they improve a model."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
from tests.helpers.trees import log_of

from fm2 import Dataset, Fm2Error, Schema, prepare, prepare_with_trees
from fm2.cli.main import main
from fm2.studies.trees import TreeGain

LOG = log_of(5000).drop("tags")


def test_trees_are_kept_if_they_lower_the_validation_loss(tmp_path):
    steps: list[str] = []
    schema = Schema.infer(LOG, "click")
    dataset, gain = prepare_with_trees(LOG, schema, tmp_path / "data", model="lr", watch=steps.append)
    assert gain.helps and str(gain).startswith("added trees: validation log loss of lr 0.")
    assert dataset.schema.names[-1] == "trees"
    assert steps == ["preparing with trees", "training lr"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]  # nothing else is left
    same = prepare(LOG, schema.with_trees(), tmp_path / "same")
    assert dataset.manifest["files"] == same.manifest["files"]


def test_trees_that_do_not_help_are_left_out(tmp_path):
    random = np.random.default_rng(1)
    rows = 1500
    noise = pl.DataFrame({"click": random.integers(0, 2, rows), "a": [f"v{i}" for i in random.integers(0, 9, rows)]})
    for seed in range(2):
        out = tmp_path / str(seed)
        steps: list[str] = []
        settings = {"model": "lr", "seed": seed, "threads": 1, "watch": steps.append}
        dataset, gain = prepare_with_trees(noise, Schema.infer(noise, "click"), out, **settings)
        assert steps[-1] == "preparing without trees"
        assert not gain.helps and str(gain).startswith("did not add trees")
        assert dataset.schema.names == ("a",)


def test_a_gain_within_the_error_does_not_help():
    assert TreeGain("lr", 0.5, 0.49, error=0.005).helps
    assert not TreeGain("lr", 0.5, 0.49, error=0.02).helps
    assert not TreeGain("lr", 0.5, 0.4999).helps  # less than 0.05%
    assert not TreeGain("lr", 0.5, 0.6).helps


def test_the_command_line_adds_trees(tmp_path, capsys):
    LOG.write_csv(tmp_path / "log.csv")
    source = [str(tmp_path / "log.csv"), "--label", "click"]
    assert main(["prepare", *source, "--out", str(tmp_path / "data"), "--trees", "always"]) == 0
    assert Dataset.open(tmp_path / "data").schema.names[-1] == "trees"
    assert re.search(r"^trees +trees on \d+ fields", capsys.readouterr().out, re.MULTILINE)
    assert main(["prepare", *source, "--out", str(tmp_path / "auto"), "--trees", "auto", "--threads", "1"]) == 0
    *steps, result = capsys.readouterr().err.splitlines()
    announced = [step for step in steps if "%" not in step]
    assert announced[:2] == ["fm2: preparing with trees ...", "fm2: training fmfm ..."]
    assert re.match("fm2: (added|did not add) trees: validation log loss of fmfm", result)
    assert main(
        ["prepare", str(tmp_path / "log.csv"), "--like", str(tmp_path / "data"), "--trees", "auto", "--out", "x"]
    )
    assert "--trees cannot be combined with --like" in capsys.readouterr().err


def test_trees_need_rows_to_verify_them(tmp_path):
    with pytest.raises(Fm2Error, match=r"prepare: .*trees.* validation rows"):
        prepare_with_trees(LOG, Schema.infer(LOG, "click"), tmp_path / "data", fractions=(1, 0, 0))
    assert not list(tmp_path.iterdir())
