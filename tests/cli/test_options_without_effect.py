"""Options that do nothing are reported in one line; the command continues."""

from __future__ import annotations

import pytest
from tests.helpers.planted import QUICK

from fm2 import Field, Schema
from fm2.cli.main import main
from fm2.data.prepare import prepare
from fm2.training.train import train

EPOCH = ["--epochs", "1", "--threads", "1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--value-dropout", "0.1"], "train: --value-dropout has no effect: the dataset has no multi-valued fields"),
        (["--time-limit", "9"], "--time-limit has no effect without --workers"),
        ([], "has no effect"),
    ],
)
def test_training_options(dataset, tmp_path, capsys, options, message):
    assert main(["train", "lr", str(dataset.path), "--out", str(tmp_path / "run"), *EPOCH, *options]) == 0
    shown = [line for line in capsys.readouterr().err.splitlines() if "no effect" in line]
    assert shown == ([f"fm2: {message}"] if options else [])


def test_value_dropout_has_an_effect_on_lists(tmp_path, recwarn):
    import polars

    log = polars.DataFrame({"click": [0, 1] * 50, "tags": ["a|b", "b", "c|a", "a"] * 25})
    dataset = prepare(log, Schema([Field("tags", multivalued=True)], "click"), tmp_path / "data")
    train("lr", dataset, tmp_path / "run", value_dropout=0.1, epochs=1)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("model", "plan", "ignored"),
    [("ffm", "cached", True), ("lr", "direct", True), ("ffm", "auto", False), ("fmfm", "cached", False)],
)
def test_plans_of_models_with_one_plan(dataset, tmp_path, capsys, model, plan, ignored):
    train(model, dataset, tmp_path / "run", **{**QUICK, "epochs": 1})
    assert main(["compile", str(tmp_path / "run"), "--out", str(tmp_path / "model.fm2"), "--plan", plan]) == 0
    assert (f"--plan {plan} has no effect: the model has only one plan, " in capsys.readouterr().err) == ignored
