"""Warm starts and evaluations on new data."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import polars as pl
import pytest
from tests.helpers.planted import QUICK, SCHEMA, planted

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.cli.main import main
from fm2.evaluation import metrics
from fm2.training.train import train


def test_a_warm_start_on_new_data(tmp_path):
    old = prepare(planted(3000), SCHEMA, tmp_path / "old")
    run = train("fmfm", old, tmp_path / "first", **QUICK)
    later = planted(3000, seed=7).with_columns(
        pl.when(pl.col("c0") == "v0").then(pl.lit("new")).otherwise(pl.col("c0")).alias("c0")
    )
    new = prepare(later, SCHEMA, tmp_path / "new")
    untrained = train(
        "fmfm",
        new,
        tmp_path / "second",
        start=run,
        **{**QUICK, "epochs": 1, "learning_rate": 1e-12, "dense_learning_rate": 0},
    )
    rows = planted(50, seed=9)
    np.testing.assert_allclose(untrained.predict(rows), run.predict(rows), atol=1e-5)
    values = {untrained.encoder.vocabularies[0].value(id) for id in range(len(untrained.encoder.vocabularies[0]))}
    assert {"new", "v0", "v1"} <= values
    better = train("fmfm", new, tmp_path / "third", start=tmp_path / "first", **QUICK)
    assert better.metrics["log_loss"] < untrained.metrics["log_loss"]
    assert main(["evaluate", str(tmp_path / "third"), str(tmp_path / "new")]) == 0
    other = train("lr", old, tmp_path / "lr", **QUICK)
    with pytest.raises(Fm2Error, match="the model to start from is lr, not fmfm"):
        train("fmfm", new, tmp_path / "third", start=other, resume=True)
    with pytest.raises(Fm2Error, match=r"has dim \d, not 7"):
        train("fmfm", new, tmp_path / "fourth", start=run, **QUICK, dim=7)
    small = train("fmfm", old, tmp_path / "small", **QUICK, dim=[2, 3, 2, 1], linear="both")
    grown = train("fmfm", new, tmp_path / "fifth", start=small, **QUICK)
    assert grown.model.config["dims"] == [2, 3, 2, 1]


@pytest.mark.parametrize(
    ("name", "changes"), [("ffm", {}), ("lr", {"optimizer": "ftrl", "learning_rate": 0.5, "l1": 0.01})]
)
def test_a_warm_start_keeps_the_weights(tmp_path, name, changes):
    """A rate of almost nothing leaves them; FTRL, which calculates weights anew, has to know where it was."""
    settings = {**QUICK, "l2_power": 0, "ema_decay": 0, **changes}
    run = train(name, prepare(planted(3000), SCHEMA, tmp_path / "old"), tmp_path / "first", **settings)
    new = prepare(planted(3000, seed=7, values=14), SCHEMA, tmp_path / "new")
    settings |= {"epochs": 1, "learning_rate": 1e-9}
    untrained = train(name, new, tmp_path / "second", start=run, **settings)
    rows = planted(50, seed=9)
    assert np.std(run.predict(rows)) > 0.01
    np.testing.assert_allclose(untrained.predict(rows), run.predict(rows), atol=1e-5)


@pytest.mark.parametrize("name", ["poly2", "fmfm"])
def test_a_model_is_evaluated_on_a_later_dataset(name, tmp_path, capsys):
    """Ids differ from day to day; values are found again, and a value that the model knows is never too rare."""
    schema = Schema([dataclasses.replace(field, min_count=20) for field in SCHEMA.fields], label="click")
    old = prepare(planted(3000, values=40), schema, tmp_path / "old")
    run = train(name, old, tmp_path / "run", **QUICK)
    table = planted(700, seed=5, values=60)
    table.write_csv(tmp_path / "day.csv")
    command = ["prepare", str(tmp_path / "day.csv"), "--like", str(tmp_path / "old"), "--out", str(tmp_path / "day")]
    assert main([*command, "--fractions", "0,0,1"]) == 0
    day = Dataset.open(tmp_path / "day")
    assert len(day.test) == 700
    assert not np.array_equal(day.vocabularies[0].data, old.vocabularies[0].data)
    expected = metrics.evaluate(table["click"].to_numpy(), run.predict(table))
    assert run.evaluate(day) == pytest.approx(expected)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "day"), "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == pytest.approx(expected)


def test_known_values_keep_their_weights_over_several_datasets(tmp_path):
    """A value that a day does not show at all is still known on the next one."""
    schema = Schema([Field("c0", min_count=5), Field("c1", min_count=1)], label="click")

    def day(number: int, like: Schema | Dataset, hot: int) -> Dataset:
        table = planted(600, seed=number)
        values = ["hot"] * hot + table["c0"].to_list()[hot:]
        return prepare(
            table.with_columns(c0=pl.Series(values)), like, tmp_path / f"day{number}", fractions=(0.5, 0.25, 0.25)
        )

    first = day(1, schema, hot=200)
    third = day(3, day(2, first, hot=0), hot=3)
    values = third.vocabularies[0].values()
    assert b"hot" in values
    assert len(values) == len(set(values)) == len(third.vocabularies[0].counts)
    ids = np.concatenate([split.ids[split.rows < 3, 0] for split in (third.train, third.validation, third.test)])
    assert ids.tolist() == [1 + values.index(b"hot")] * 3


def test_evaluating_a_separately_prepared_dataset_warns(tmp_path, capsys):
    old = prepare(planted(1000), SCHEMA, tmp_path / "old")
    train("lr", old, tmp_path / "run", **QUICK)
    prepare(planted(500, seed=4), SCHEMA, tmp_path / "alone")
    prepare(planted(500, seed=4), old, tmp_path / "like")
    for name, told in (("old", False), ("like", False), ("alone", True)):
        assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / name)]) == 0
        assert ("was not prepared with --like" in capsys.readouterr().err) == told
    other = Schema(SCHEMA.fields, label="click", missing=("NA",))
    with pytest.raises(Fm2Error, match="has other missing values"):
        train("lr", prepare(planted(500), other, tmp_path / "words"), tmp_path / "none", start=tmp_path / "run")


def test_new_data_uses_the_old_buckets(tmp_path, capsys):
    """Quantiles that were learned anew would mean other things to the old model."""
    fields = [Field("price", "numeric", transform="quantiles", buckets=5), Field("c0", min_count=1)]
    schema = Schema(fields, label="click")

    def day(number: int) -> str:
        random = np.random.default_rng(number)
        table = planted(800, seed=number).with_columns(price=pl.Series(random.gamma(2 + number, size=800)))
        table.write_csv(tmp_path / f"day{number}.csv")
        return str(tmp_path / f"day{number}.csv")

    old = prepare(day(0), schema, tmp_path / "old")
    run = train("lr", old, tmp_path / "run", **QUICK)
    anew = prepare(day(1), schema, tmp_path / "anew")
    with pytest.raises(Fm2Error, match="reads, hashes or buckets the field 'price' differently"):
        train("lr", anew, tmp_path / "none", start=run, **QUICK)
    with pytest.raises(Fm2Error, match=r"the field 'price' differently .* prepare the rows like the dataset"):
        run.evaluate(anew)
    assert main(["prepare", day(1), "--like", str(tmp_path / "old"), "--out", str(tmp_path / "new")]) == 0
    new = Dataset.open(tmp_path / "new")
    np.testing.assert_array_equal(new.vocabularies[0].boundaries, old.vocabularies[0].boundaries)
    train("lr", new, tmp_path / "more", start=run, **QUICK)
    command = ["prepare", day(1), "--like", str(tmp_path / "old"), "--out", str(tmp_path / "x"), "--min-count", "2"]
    assert main(command) == 1
    assert "--min-count cannot be combined with --like" in capsys.readouterr().err


def test_poly2_has_no_warm_start(dataset, tmp_path):
    run = train("poly2", dataset, tmp_path / "run", **QUICK)
    with pytest.raises(Fm2Error, match="poly2 cannot start from a trained model: it hashes the ids of pairs"):
        train("poly2", dataset, tmp_path / "more", start=run, **QUICK)
