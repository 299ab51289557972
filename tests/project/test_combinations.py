"""Features that are otherwise tested alone, in one model: lists, numbers, sampling, warm start, calibration."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.helpers.list_log import LIST_SCHEMA, list_log
from tests.helpers.planted import QUICK

import fm2
from fm2 import Dataset, Field, Run, Scorer, prepare, train

SCHEMA = LIST_SCHEMA.replace(
    fields=(
        *LIST_SCHEMA.fields,
        *(Field(f"price_{name}", "numeric", column="price", transform=name) for name in ("interpolate", "linear")),
    )
)
COMPILED = {
    "lr": [{}],
    "poly2": [{}],
    "ffm": [{"dtype": "f16"}, {}],
    "fm": [{}],
    "fmfm": [{"plan": "direct"}, {"plan": "cached"}, {"plan": "spectral", "rank": 24}],
}
SMALL = {"fm": {"dim": 4}, "fmfm": {"dim": 4}, "ffm": {"dim": 2}, "poly2": {"hash_bits": 10}}


def priced_log(rows: int, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    prices = [None if row % 20 == 0 else round(price, 2) for row, price in enumerate(random.lognormal(2, 1, rows))]
    return list_log(rows, seed).with_columns(price=pl.Series(prices))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory) -> tuple[Dataset, Dataset]:
    """Return a dataset with all rows, and a later one with a share of those without a click."""
    folder = tmp_path_factory.mktemp("sampled")
    first = prepare(priced_log(2000), SCHEMA, folder / "first")
    return first, prepare(priced_log(4000, seed=1), first, folder / "later", negative_rate=0.3)


@pytest.fixture(scope="module", params=COMPILED)
def run(request, sampled, tmp_path_factory) -> Run:
    """Train a model, train it further on sampled rows, and calibrate it by a field."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = {**QUICK, "value_dropout": 0.1, **SMALL.get(request.param, {})}
    first, later = sampled
    start = train(request.param, first, folder / "start", **settings)
    if request.param == "poly2":  # it cannot be trained further
        trained = train("poly2", later, folder / "run", **settings)
    else:
        trained = train(request.param, later, folder / "run", start=start, **settings)
    assert trained.negative_rate == 0.3
    fm2.calibrate(trained, later, by="site", method="platt")
    return trained


@pytest.fixture(scope="module")
def scorers(run, tmp_path_factory) -> list[Scorer]:
    folder = tmp_path_factory.mktemp("compiled")
    options = COMPILED[run.model.name]
    return [fm2.load(fm2.compile(run.path, folder / f"{n}.fm2", **chosen).path) for n, chosen in enumerate(options)]


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    strange = {"site": "new", "item": None, "history": "i1|new", "tags": None, "price": "cheap"}
    return [*priced_log(300, seed=2).drop("click").to_dicts(), strange, {"price": 1e9}, {"tags": "t1:0|t2:0"}]


def test_sampling_does_not_change_the_mean_prediction(sampled, run):
    for split in ("validation", "test"):
        rows = sampled[1].split(split)
        assert run.probabilities(rows.encoded).mean() == pytest.approx(rows.labels.mean(), abs=0.06)


def test_compiled_models_predict_what_the_run_predicts(run, scorers, rows):
    expected = run.predict(rows)
    assert len(np.unique(expected)) > 250
    shifts = run.calibration.shifts
    assert shifts is not None and np.ptp(shifts) > 0
    for scorer in scorers:
        atol = 2e-3 if scorer.dtype == "f16" else 2e-5
        np.testing.assert_allclose(scorer.predict(rows), expected, atol=atol)
        ones = [scorer.predict_one(row) for row in rows]
        np.testing.assert_allclose(ones, scorer.predict(rows), atol=1e-6)
        assert scorer.encoder.decode(scorer.encode_rows(rows)) == run.encoder.decode(run.encoder.encode_rows(rows))


def test_contributions_add_up(scorers, rows):
    for scorer in scorers:
        logits = scorer.logits(rows)
        for row in (0, 7, len(rows) - 3):
            explanation = scorer.explain(rows[row])
            assert explanation.logit == pytest.approx(logits[row], abs=1e-4)
            for name, values in explanation.values.items():
                assert sum(value.linear for value in values) == pytest.approx(explanation.fields[name], abs=1e-5)


@pytest.mark.parametrize("context", [["site", "history"], ["item", "tags", "price"]])
def test_rankers_predict_calibrated_probabilities(run, scorers, rows, context):
    if run.model.name == "poly2":
        pytest.skip("poly2 has no ranker")
    shared = {name: rows[0][name] for name in context}
    candidates = [{name: value for name, value in row.items() if name not in context} for row in rows[:50]]
    expected = scorers[0].predict([{**row, **shared} for row in candidates])
    for scorer in scorers:
        atol = 2e-3 if "f16" in {scorer.dtype, scorers[0].dtype} else 2e-5
        ranker = scorer.ranker(context=context)
        for ranked in (ranker.rank(shared, candidates), ranker.catalog(candidates).top(shared, 50)):
            np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=atol)


def test_candidates_may_have_only_list_columns(scorers, run):
    if run.model.name == "poly2":
        pytest.skip("poly2 has no ranker")
    shared = {"site": "s1", "item": "i2", "tags": {"t1": 0.5}, "price": 3.5}
    candidates = pl.DataFrame({"history": [["i1"], ["i2", "i3"], [], None]})
    ranked = scorers[-1].ranker(candidate=["history"]).rank(shared, candidates)
    rows = [{**shared, **row} for row in candidates.to_dicts()]
    np.testing.assert_allclose(ranked.probabilities, scorers[-1].predict(rows)[ranked.indices], atol=1e-5)


def test_the_export_predicts_what_the_run_predicts(run, rows, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(fm2.export_onnx(run, tmp_path / "model.onnx")))
    inputs = fm2.onnx_inputs(run.encoder.encode_rows(rows), SCHEMA.names)
    np.testing.assert_allclose(session.run(None, inputs)[0], run.predict(rows), atol=1e-5)
