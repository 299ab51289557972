"""Compiled models with trees on multi-valued fields: the same scores from values, ids, files and rankings."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.helpers.tree_lists import SCHEMA, TREES, log_of

import fm2
from fm2.engine.compile import compile
from fm2.engine.scorer import load

ROWS = log_of(300, seed=3).drop("click", "w")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fm2.prepare(log_of(3000), SCHEMA, tmp_path_factory.mktemp("trees") / "data")


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return fm2.train("fmfm", dataset, tmp_path_factory.mktemp("runs") / "run", epochs=2, dim=4)


@pytest.fixture(scope="module")
def scorer(run, tmp_path_factory):
    return load(compile(run.path, tmp_path_factory.mktemp("models") / "model.fm2").path)


def test_raw_values_and_ids_have_the_same_scores(run, scorer, dataset, tmp_path):
    encoded = dataset.encode(ROWS)
    assert len(np.unique(encoded.ids[:, TREES])) > 50
    expected = scorer.predict(encoded)
    np.testing.assert_allclose(expected, run.predict(ROWS), atol=1e-5)
    np.testing.assert_array_equal(scorer.encode(ROWS).ids[:, TREES], encoded.ids[:, TREES])
    np.testing.assert_array_equal(scorer.predict(ROWS.to_dicts()), expected)
    np.testing.assert_array_equal([scorer.predict_one(row) for row in ROWS.to_dicts()], expected)
    np.testing.assert_array_equal(scorer.predict(scorer.encoder.encode_rows(ROWS)), expected)  # from the file's texts
    flat = ROWS.with_columns(pl.col("genres", "scores").cast(pl.List(pl.String)).list.join("|"))
    flat.write_csv(tmp_path / "rows.csv")
    fm2.predict_files(scorer, [tmp_path / "rows.csv"], tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), scorer.predict(flat))


@pytest.mark.parametrize("context", [["tags"], ["site", "history", "genres", "scores"], ["item", "price"]])
def test_ranked_candidates_have_the_probabilities_of_complete_rows(scorer, context):
    ranker = scorer.ranker(context=context)
    one = ROWS[1].to_dicts()[0]
    given = {column: one[column] for column in context}
    candidates = ROWS.drop(*context).to_dicts()
    expected = scorer.predict([{**row, **given} for row in candidates])
    ranked = ranker.rank(given, candidates)
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=2e-6)


def test_a_catalog_contains_trees_on_the_lists_of_items(tmp_path):
    plain = [field for field in SCHEMA.fields if not field.trees]
    trees = fm2.Field("trees", trees=["item", "tags", "genres"])
    log, schema = log_of(2000), SCHEMA.replace(fields=[*plain, trees])
    run = fm2.train("lr", fm2.prepare(log, schema, tmp_path / "data"), tmp_path / "run", epochs=1)
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    context = ["site", "history", "price"]
    given = ROWS.select(context)[0].to_dicts()[0]
    items = ROWS.drop(context).to_dicts()
    top = scorer.ranker(context=context).catalog(items).top(given, k=50)
    expected = scorer.predict([{**row, **given} for row in items])
    np.testing.assert_allclose(top.probabilities, expected[top.indices], atol=2e-6)


def test_explanations_name_trees(scorer):
    assert "trees" in scorer.explain(ROWS.to_dicts()[0]).fields


def test_warm_starts_keep_the_trees(run, dataset, tmp_path):
    newer = log_of(800, seed=9).with_columns(tags=pl.lit("new:1|") + pl.col("tags"))
    later = fm2.prepare(newer, dataset, tmp_path / "later")
    again = fm2.train("fmfm", later, tmp_path / "run", start=run, learn=False, dim=4)
    np.testing.assert_allclose(again.predict(ROWS), run.predict(ROWS), atol=1e-5)
    assert run.evaluate(later)
