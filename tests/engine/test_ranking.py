"""Ranking gives what scoring whole rows gives, in the right order."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.planted import QUICK, planted

from fm2 import Fm2Error
from fm2.engine.compile import compile
from fm2.engine.model_file import new_model
from fm2.engine.scorer import load
from fm2.training.train import train

MODELS = {
    "lr": {},
    "fm": {"dim": 5},
    "ffm": {"dim": 3},
    "fwfm": {"dim": 4},
    "fmfm": {"dim": [3, 1, 17, 8]},
}


PLANS = [*((name, "cached") for name in MODELS), ("fmfm", "direct"), ("fmfm", "spectral")]


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    """Train every model once."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: train(name, dataset, folder / name, **{**QUICK, **own}).path for name, own in MODELS.items()}


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("columns", [["c0"], ["c1", "c3"], ["c3", "c0", "c2"]])
@pytest.mark.parametrize(("name", "plan"), PLANS)
def test_candidates_have_the_probabilities_of_whole_rows(runs, tmp_path, name, plan, columns, dtype):
    compile(runs[name], tmp_path / "model.fm2", plan=plan, rank=7 if plan == "spectral" else None, dtype=dtype)
    scorer = load(tmp_path / "model.fm2")
    ranker = scorer.ranker(context=columns)
    rows = planted(400, seed=3)
    context = {column: rows[column][0] for column in columns}
    whole = rows.with_columns(**{column: rows[column].gather([0] * 400) for column in columns})
    expected = scorer.predict(whole)
    ranked = ranker.rank(context, rows.drop(columns))
    assert sorted(ranked.places.tolist()) == list(range(400))
    rounded = 2e-6 if dtype == "f32" else 1e-2  # cached products are rounded on their own
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.places], atol=rounded)
    assert (np.diff(ranked.probabilities) <= 0).all()
    best = ranker.rank(context, rows.drop(columns).to_dicts(), top=10)
    np.testing.assert_array_equal(best.places, ranked.places[:10])
    catalog = ranker.catalog(rows.drop(columns))
    top = catalog.top(context, k=25)
    np.testing.assert_allclose(top.probabilities, ranked.probabilities[:25], atol=2e-6)
    catalog.save(tmp_path / "items.fm2")
    again = ranker.load_catalog(tmp_path / "items.fm2").top(context, k=25)
    np.testing.assert_array_equal(again.places, top.places)


def test_equal_candidates_keep_their_order_on_any_threads(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ids = np.tile(np.array([[1, 2, 3], [4, 5, 6]], np.int32), (70_000, 1))
    found = []
    for threads in (1, 2, 3):
        ranker = load(tmp_path / "model.fm2", threads=threads).ranker(context=["c1"])
        found.append(ranker.catalog(ids).top(np.array([2], np.int32), k=50).places)
    assert all(np.array_equal(found[0], places) for places in found)
    assert found[0].tolist() == list(range(found[0][0], found[0][0] + 100, 2))


def test_what_cannot_be_ranked_is_told(runs, dataset, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    scorer = load(tmp_path / "model.fm2")
    for context, candidate, message in (
        (["c9"], [], "the model has no column 'c9'; choose from c0, c1, c2, c3"),
        (["c0"], ["c0", "c1"], "the column 'c0' is both the context's and the candidates'"),
        (["c0"], ["c1"], "the column 'c2' is neither"),
        (["c0", "c1", "c2", "c3"], [], "need a field each"),
    ):
        with pytest.raises(Fm2Error, match=message):
            scorer.ranker(context, candidate)
    ranker = scorer.ranker(context=["c0"])
    with pytest.raises(Fm2Error, match="has the id 99 in field 2"):
        ranker.rank({"c0": "v1"}, np.array([[1, 99, 1]]))
    with pytest.raises(Fm2Error, match="a candidate has 3 fields"):
        ranker.rank({"c0": "v1"}, np.array([[1, 1]]))
    with pytest.raises(Fm2Error, match="not str"):
        ranker.rank("v1", np.array([[1, 1, 1]]))
    poly2 = train("poly2", dataset, tmp_path / "poly2", **QUICK, hash_bits=8)
    compile(poly2.path, tmp_path / "poly2.fm2")
    with pytest.raises(Fm2Error, match="poly2's pairs are hashed"):
        load(tmp_path / "poly2.fm2").ranker(context=["c0"])
    ranker.catalog(np.array([[1, 1, 1]])).save(tmp_path / "items.fm2")
    with pytest.raises(Fm2Error, match="was made with another model"):
        scorer.ranker(context=["c1"]).load_catalog(tmp_path / "items.fm2")
    with pytest.raises(Fm2Error, match=r"model.fm2 is no catalog"):
        ranker.load_catalog(tmp_path / "model.fm2")
    with pytest.raises(Fm2Error, match="the context has none of its columns, c0"):
        ranker.rank({"c1": "v1"}, [{"c1": "v1"}])
    with pytest.raises(Fm2Error, match="the first candidate has none of its columns, c1, c2, c3"):
        ranker.rank({"c0": "v1"}, [{"c0": "v1"}])
    with pytest.raises(Fm2Error, match="the best -1 are asked for"):
        ranker.rank({"c0": "v1"}, [{"c1": "v1"}], top=-1)


def test_ids_that_no_field_has_are_refused_by_the_right_row(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ranker = load(tmp_path / "model.fm2").ranker(context=["c0"])
    many = np.ones((70_000, 3), np.int32)
    many[66_000, 1] = 99
    for use in (lambda ids: ranker.rank(np.array([1]), ids), ranker.catalog):
        with pytest.raises(Fm2Error, match="row 66000 has the id 99 in field 2"):
            use(many)
        with pytest.raises(Fm2Error, match="ids must be between 0 and 2147483647, got"):
            use(np.array([[1, 2**32 + 1, 1]]))
    for context, message in (
        (np.array([2**32 + 1]), "ids must be between 0 and 2147483647, got"),
        (np.array([1.7]), "ids must be integers of shape fields, got float64"),
        (np.array([[1]]), "ids must be integers of shape fields, got int64"),
    ):
        with pytest.raises(Fm2Error, match=message):
            ranker.rank(context, many[:1])


def test_catalogs_that_are_empty_or_crafted(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ranker = load(tmp_path / "model.fm2").ranker(context=["c0"])
    empty = ranker.catalog(np.empty((0, 3), np.int32))
    empty.save(tmp_path / "empty.fm2")
    assert len(ranker.load_catalog(tmp_path / "empty.fm2").top(np.array([1]), k=3)) == 0
    told = {
        "items": 1,
        "model": ranker.scorer.fingerprint,
        "context": [0],
        "width": ranker.catalog(np.ones((1, 3), int)).rows.shape[1],
    }
    rows = np.zeros(8, np.float32)
    for meta in (
        b"{",
        b"[]",
        b"{}",
        *(json.dumps({**told, "items": items}).encode() for items in (3, -1, "1", None, 2**70)),
    ):
        sections = {"kind": np.frombuffer(b"catalog", np.uint8), "rows": rows, "meta": np.frombuffer(meta, np.uint8)}
        with new_model(tmp_path / "crafted.fm2", sections):
            pass
        with pytest.raises(Fm2Error, match="catalog: "):
            ranker.load_catalog(tmp_path / "crafted.fm2")


def test_a_score_that_is_no_number_comes_last(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ranker = load(tmp_path / "model.fm2").ranker(context=["c0"])
    catalog = ranker.catalog(np.random.default_rng(0).integers(0, 8, (40, 3)))
    expected = catalog.top(np.array([1]), k=40).places
    catalog.rows[expected[0]] = np.nan
    assert catalog.top(np.array([1]), k=40).places.tolist() == [*expected[1:], expected[0]]
