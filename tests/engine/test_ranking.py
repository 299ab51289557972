"""Ranking returns the probabilities of complete rows, best first."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.planted import QUICK, planted

from fm2 import Fm2Error
from fm2.engine.compile import compile
from fm2.engine.model_file import ModelWriter
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
    return {
        name: train(name, dataset, folder / name, **{**QUICK, **settings}).path for name, settings in MODELS.items()
    }


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("columns", [["c0"], ["c1", "c3"], ["c3", "c0", "c2"]])
@pytest.mark.parametrize(("name", "plan"), PLANS)
def test_candidates_have_the_probabilities_of_complete_rows(runs, tmp_path, name, plan, columns, dtype):
    compile(runs[name], tmp_path / "model.fm2", plan=plan, rank=7 if plan == "spectral" else None, dtype=dtype)
    scorer = load(tmp_path / "model.fm2")
    ranker = scorer.ranker(context=columns)
    rows = planted(400, seed=3)
    context = {column: rows[column][0] for column in columns}
    complete = rows.with_columns(**{column: rows[column].gather([0] * 400) for column in columns})
    expected = scorer.predict(complete)
    ranked = ranker.rank(context, rows.drop(columns))
    assert sorted(ranked.indices.tolist()) == list(range(400))
    rounded = 2e-6 if dtype == "f32" else 1e-2  # cached products are rounded separately
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=rounded)
    assert (np.diff(ranked.probabilities) <= 0).all()
    best = ranker.rank(context, rows.drop(columns).to_dicts(), top=10)
    np.testing.assert_array_equal(best.indices, ranked.indices[:10])
    catalog = ranker.catalog(rows.drop(columns))
    top = catalog.top(context, k=25)
    np.testing.assert_allclose(top.probabilities, ranked.probabilities[:25], atol=2e-6)
    catalog.save(tmp_path / "items.fm2")
    again = ranker.load_catalog(tmp_path / "items.fm2").top(context, k=25)
    np.testing.assert_array_equal(again.indices, top.indices)


def test_the_order_of_equal_candidates_does_not_depend_on_threads(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ids = np.tile(np.array([[1, 2, 3], [4, 5, 6]], np.int32), (70_000, 1))
    results = []
    for threads in (1, 2, 3):
        ranker = load(tmp_path / "model.fm2", threads=threads).ranker(context=["c1"])
        results.append(ranker.catalog(ids).top(np.array([2], np.int32), k=50).indices)
    assert all(np.array_equal(results[0], indices) for indices in results)
    assert results[0].tolist() == list(range(results[0][0], results[0][0] + 100, 2))


def test_invalid_rankings_raise_an_error(runs, dataset, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    scorer = load(tmp_path / "model.fm2")
    for context, candidate, message in (
        (["c9"], [], "rank: unknown column 'c9'; choose from c0, c1, c2, c3"),
        (["c0"], ["c0", "c1"], "rank: column 'c0' is in both the context and the candidates"),
        (["c0"], ["c1"], "rank: column 'c2' is in neither the context nor the candidates"),
        ("c0", [], r"rank: context must be a list of columns, got 'c0'; write \['c0'\]"),
        ([], "c1", "rank: candidate must be a list of columns, got 'c1'"),
        (["c0", "c1", "c2", "c3"], [], "rank: the context and the candidates need at least one field each"),
    ):
        with pytest.raises(Fm2Error, match=message):
            scorer.ranker(context, candidate)
    ranker = scorer.ranker(context=["c0"])
    with pytest.raises(Fm2Error, match="rank: row 0 has id 99 in field 2; it must be between 0 and"):
        ranker.rank({"c0": "v1"}, np.array([[1, 99, 1]]))
    with pytest.raises(Fm2Error, match="rank: expected candidates of 3 fields, got 2"):
        ranker.rank({"c0": "v1"}, np.array([[1, 1]]))
    with pytest.raises(Fm2Error, match="rank: expected the context as a dict or an array of ids, got str"):
        ranker.rank("v1", np.array([[1, 1, 1]]))
    poly2 = train("poly2", dataset, tmp_path / "poly2", **QUICK, hash_bits=8)
    compile(poly2.path, tmp_path / "poly2.fm2")
    with pytest.raises(Fm2Error, match="rank: poly2 hashes its pairs"):
        load(tmp_path / "poly2.fm2").ranker(context=["c0"])
    ranker.catalog(np.array([[1, 1, 1]])).save(tmp_path / "items.fm2")
    with pytest.raises(Fm2Error, match="belongs to another model"):
        scorer.ranker(context=["c1"]).load_catalog(tmp_path / "items.fm2")
    with pytest.raises(Fm2Error, match=r"model.fm2: not a catalog"):
        ranker.load_catalog(tmp_path / "model.fm2")
    with pytest.raises(Fm2Error, match=r"unknown column 'c11'; choose from c2$"):
        scorer.ranker(context=["c1", "c11"], candidate=["c0", "c3"])
    with pytest.raises(Fm2Error, match="the context has none of its columns: c0"):
        ranker.rank({"c1": "v1"}, [{"c1": "v1"}])
    with pytest.raises(Fm2Error, match="rank: candidate 1 has none of its columns: c1, c2, c3"):
        ranker.rank({"c0": "v1"}, [{"c0": "v1"}])
    with pytest.raises(Fm2Error, match="rank: the number of candidates must be an integer of 0 or more, got -1"):
        ranker.rank({"c0": "v1"}, [{"c1": "v1"}], top=-1)


def test_invalid_ids_are_reported_with_their_row(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ranker = load(tmp_path / "model.fm2").ranker(context=["c0"])
    many = np.ones((70_000, 3), np.int32)
    many[66_000, 1] = 99
    for use in (lambda ids: ranker.rank(np.array([1]), ids), ranker.catalog):
        with pytest.raises(Fm2Error, match="row 66000 has id 99 in field 2"):
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


def test_empty_catalogs_work_and_crafted_ones_are_rejected(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ranker = load(tmp_path / "model.fm2").ranker(context=["c0"])
    empty = ranker.catalog(np.empty((0, 3), np.int32))
    empty.save(tmp_path / "empty.fm2")
    assert len(ranker.load_catalog(tmp_path / "empty.fm2").top(np.array([1]), k=3)) == 0
    identity = {
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
        *(json.dumps({**identity, "items": items}).encode() for items in (3, -1, "1", None, 2**70)),
    ):
        sections = {"kind": np.frombuffer(b"catalog", np.uint8), "rows": rows, "meta": np.frombuffer(meta, np.uint8)}
        ModelWriter(tmp_path / "crafted.fm2", sections).seal()
        with pytest.raises(Fm2Error, match="catalog: "):
            ranker.load_catalog(tmp_path / "crafted.fm2")


def test_nan_scores_come_last(runs, tmp_path):
    compile(runs["fmfm"], tmp_path / "model.fm2")
    ranker = load(tmp_path / "model.fm2").ranker(context=["c0"])
    catalog = ranker.catalog(np.random.default_rng(0).integers(0, 8, (40, 3)))
    expected = catalog.top(np.array([1]), k=40).indices
    catalog.rows[expected[0]] = np.nan
    assert catalog.top(np.array([1]), k=40).indices.tolist() == [*expected[1:], expected[0]]
