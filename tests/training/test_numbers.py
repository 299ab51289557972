"""Models of interpolated and standardized numbers: continuous, and the same at prediction as in training."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from fm2 import Field, Schema, prepare, train


def log_scale(x: float) -> float:
    return math.copysign(math.log1p(abs(x)), x)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """A log whose click rate is a smooth function of the number."""
    random = np.random.default_rng(0)
    numbers = np.round(random.lognormal(3, 1, 20_000), 1)
    rate = 1 / (1 + np.exp(-np.sin(np.log(numbers))))
    present = pl.Series(numbers).set(pl.Series(random.random(20_000) < 0.05), None)
    return pl.DataFrame({"y": random.random(20_000) < rate, "n": present, "site": random.choice(["a", "b"], 20_000)})


def logits(run, numbers) -> np.ndarray:
    probabilities = run.predict([{"n": x, "site": "a"} for x in numbers]).astype(np.float64)
    return np.log(probabilities / (1 - probabilities))


@pytest.mark.parametrize("model", ["lr", "fmfm"])
def test_a_model_is_continuous_in_an_interpolated_number(table, tmp_path, model):
    schema = Schema([Field("n", "numeric", transform="interpolate", knots=12), Field("site")], "y")
    dataset = prepare(table, schema, tmp_path / "data")
    run = train(model, dataset, tmp_path / "run", epochs=3, threads=1)
    knots = dataset.vocabularies[0].boundaries.astype(np.float64)
    numbers = np.exp(np.linspace(np.log(knots[0]), np.log(knots[-1]), 400))[1:-1]
    at_knots = logits(run, knots.tolist())
    positions = [log_scale(x) for x in knots]
    expected = np.interp([log_scale(float(np.float32(x))) for x in numbers], positions, at_knots)
    np.testing.assert_allclose(logits(run, numbers.tolist()), expected, atol=1e-4)
    assert np.ptp(at_knots) > 0.2
    assert run.metrics["log_loss"] < 0.69


def test_one_column_can_have_all_transforms(table, tmp_path):
    transforms = ("log_square", "quantiles", "interpolate", "linear")
    fields = [Field(f"n_{name}", "numeric", column="n", transform=name) for name in transforms]
    dataset = prepare(table, Schema([*fields, Field("site")], "y"), tmp_path / "data")
    run = train("fmfm", dataset, tmp_path / "run", epochs=1, threads=1)
    raw = table[dataset.test.rows.tolist()]
    np.testing.assert_array_equal(run.predict(raw), run.probabilities(dataset.test.encoded))
    assert len(set(run.predict([{"n": x} for x in range(50)]).tolist())) == 50


@pytest.mark.filterwarnings("ignore:train. value_dropout= has no effect")
@pytest.mark.parametrize("model", ["lr", "poly2", "fmfm"])
def test_value_dropout_keeps_the_features_of_numbers(table, tmp_path, model):
    fields = [Field(f"n_{name}", "numeric", column="n", transform=name) for name in ("interpolate", "linear")]
    dataset = prepare(table, Schema([*fields, Field("site")], "y"), tmp_path / "data")
    runs = [
        train(model, dataset, tmp_path / f"run{rate}", epochs=1, threads=1, value_dropout=rate) for rate in (0.0, 0.5)
    ]
    np.testing.assert_array_equal(*(run.probabilities(dataset.test.encoded) for run in runs))
