"""How large trees are, and how much the click rates of rare features are shrunk: both follow from the log."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fm2 import Field, Schema, prepare
from fm2.data.tree_boosting import LARGE, SETTINGS
from fm2.data.tree_inputs import LEAST_PRIOR_ROWS, MOST_PRIOR_ROWS, prior_rows
from fm2.data.trees import Trees

NUMBERS = [Field(name, "numeric", transform="quantiles") for name in ("x", "y")]
SCHEMA = Schema([*NUMBERS, Field("trees", trees=["x", "y"])], label="click")


def log_of(rows: int, probability) -> pl.DataFrame:
    random = np.random.default_rng(rows)
    x, y = random.random((2, rows)).round(4)
    return pl.DataFrame({"click": (random.random(rows) < probability(x, y)).astype(int), "x": x, "y": y})


def squares(x, y):
    """Return the probabilities of a board with 8 x 8 squares, on which x or y alone mean nothing."""
    return np.where((np.floor(8 * x) + np.floor(8 * y)) % 2, 0.95, 0.05)


def slopes(x, y):
    return 0.2 + 0.3 * x + 0.3 * y


@pytest.mark.parametrize(("probability", "leaves"), [(squares, LARGE["num_leaves"]), (slopes, SETTINGS["num_leaves"])])
def test_trees_are_larger_where_numbers_have_many_effects_in_common(tmp_path, probability, leaves):
    dataset = prepare(log_of(12_000, probability), SCHEMA, tmp_path / "data")
    trees = Trees.of(dataset.vocabularies[2].trees)
    per_tree = len(trees.leaves) / len(trees.roots)
    assert SETTINGS["num_leaves"] < per_tree <= leaves if leaves > SETTINGS["num_leaves"] else per_tree <= leaves
    np.testing.assert_array_equal(dataset.encode(log_of(12_000, probability))[dataset.test.rows], dataset.test.ids)


@pytest.mark.parametrize("concentration", [2.0, 10.0, 50.0])
def test_the_prior_is_that_of_the_click_rates(concentration):
    random = np.random.default_rng(0)
    rates = random.beta(0.3 * concentration, 0.7 * concentration, 20_000)
    shown = random.integers(1, 30, len(rates))
    estimate = prior_rows(random.binomial(shown, rates).astype(float), shown.astype(float))
    assert estimate == pytest.approx(concentration, rel=0.1)


def test_the_prior_is_finite_without_evidence():
    twice = np.full(100, 2.0)
    assert prior_rows(np.zeros(100), twice) == MOST_PRIOR_ROWS  # no clicks
    assert prior_rows(np.ones(100), np.ones(100)) == MOST_PRIOR_ROWS  # only clicks, and no feature twice
    assert prior_rows(np.zeros(0), np.zeros(0)) == MOST_PRIOR_ROWS
    assert prior_rows(np.tile([0.0, 2.0], 50), twice) == LEAST_PRIOR_ROWS  # rows with the same feature are alike


def test_aggregated_rows_have_the_same_priors_as_impressions(tmp_path, monkeypatch):
    """Every row of the log has 20 impressions of the same user; users differ in their click rates."""
    random = np.random.default_rng(0)
    rates = random.beta(4, 16, 200)
    users = np.repeat(np.arange(200), 10)
    log = pl.DataFrame({"clicks": random.binomial(20, rates[users]), "views": 20, "user": [f"u{u}" for u in users]})
    found: dict[int, list[float]] = {}
    for impressions in (1, 20):
        rows = log if impressions > 1 else _expanded(log)
        found[impressions] = []
        monkeypatch.setattr("fm2.data.tree_inputs.prior_rows", _recorded(found[impressions]))
        schema = Schema([Field("user"), Field("t", trees=["user"])], "clicks", impressions="views")
        prepare(rows, schema, tmp_path / str(impressions), split="time", fractions=(1, 0, 0))
    assert found[20][0] == pytest.approx(found[1][0], rel=1e-3)
    assert 15 < found[20][0] < 27


def _expanded(log: pl.DataFrame) -> pl.DataFrame:
    counts = pl.int_ranges(0, pl.col("views"))
    rows = log.with_columns(at=counts).explode("at")
    return rows.select((pl.col("at") < pl.col("clicks")).cast(pl.Int64).alias("clicks"), views=pl.lit(1), user="user")


def _recorded(found: list[float]):
    def estimate(clicks, shown) -> float:
        found.append(prior_rows(clicks, shown))
        return found[-1]

    return estimate
