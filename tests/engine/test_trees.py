"""Trees in trained and compiled models: the same scores from raw values, ids, files and rankings."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.helpers.trees import SCHEMA, TREES, log_of

import fm2
from fm2.engine.compile import compile
from fm2.engine.scorer import load

ROWS = log_of(300, seed=3).drop("click")
MODELS = {"lr": {}, "fmfm": {"dim": 4}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fm2.prepare(log_of(3000), SCHEMA, tmp_path_factory.mktemp("trees") / "data")


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: fm2.train(name, dataset, folder / name, epochs=2, **settings) for name, settings in MODELS.items()}


@pytest.fixture(scope="module")
def compiled(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: load(compile(run.path, folder / f"{name}.fm2").path) for name, run in runs.items()}


@pytest.mark.parametrize("name", MODELS)
def test_raw_values_and_ids_have_the_same_scores(runs, compiled, dataset, name):
    run, scorer = runs[name], compiled[name]
    encoded = dataset.encode(ROWS)
    assert len(np.unique(encoded.ids[:, TREES])) > 5
    expected = scorer.predict(encoded)
    np.testing.assert_allclose(expected, run.predict(ROWS), atol=1e-5)
    np.testing.assert_allclose(expected, fm2.Run.open(run.path).predict(ROWS), atol=1e-5)
    np.testing.assert_array_equal(scorer.encode(ROWS).ids, encoded.ids)
    np.testing.assert_array_equal(scorer.encode(ROWS.to_dicts()).ids, encoded.ids)
    np.testing.assert_array_equal([scorer.predict_one(row) for row in ROWS.to_dicts()], expected)
    np.testing.assert_array_equal(scorer.predict(scorer.encoder.encode_rows(ROWS)), expected)  # from the file's texts


def test_text_files_have_the_same_scores(compiled, tmp_path):
    ROWS.write_csv(tmp_path / "rows.csv")
    fm2.predict_files(compiled["fmfm"], [tmp_path / "rows.csv"], tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), compiled["fmfm"].predict(ROWS))


SIDES = [["user"], ["item", "age"], ["device", "visits", "tags"]]


@pytest.mark.parametrize("context", SIDES)
def test_ranked_candidates_have_the_probabilities_of_complete_rows(compiled, context):
    scorer = compiled["fmfm"]
    ranker = scorer.ranker(context=context)
    one = {column: ROWS[column][1] for column in context}
    expected = scorer.predict(ROWS.with_columns(**{column: pl.lit(one[column]) for column in context}))
    candidates = ROWS.drop(*context)
    other = {name: ROWS[name][7] for name in candidates.columns}  # not columns of the context
    for given in (candidates.to_dicts(), candidates.to_dict(as_series=False)):
        for values in (one, other | one):
            ranked = ranker.rank(values, given)
            np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=2e-6)
    with pytest.raises(fm2.Fm2Error, match="trees read both sides, so the candidates must be a list of dicts"):
        ranker.rank(one, candidates)


def test_rankings_by_ids_use_the_ids_of_trees(compiled, dataset):
    scorer = compiled["fmfm"]
    ranker = scorer.ranker(context=["user"])
    one = {"user": ROWS["user"][0]}
    encoded = dataset.encode(ROWS.with_columns(user=pl.lit(one["user"])))
    lists = {index - 1: table for index, table in encoded.lists.items()}
    rows = fm2.EncodedRows(np.ascontiguousarray(encoded.ids[:, 1:]), lists)
    ranked = ranker.rank(np.ascontiguousarray(encoded.ids[0, :1]), rows)
    expected = scorer.predict(encoded)
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=2e-6)
    with pytest.raises(fm2.Fm2Error, match="trees read both sides, so the context must be a dict"):
        ranker.rank(np.ascontiguousarray(encoded.ids[0, :1]), ROWS.drop("user").to_dicts())


def test_trees_of_one_side_belong_to_it(compiled):
    columns = [name for name in compiled["fmfm"].columns if name != "tags"]
    ranker = compiled["fmfm"].ranker(candidate=columns)
    expected = compiled["fmfm"].predict(ROWS.with_columns(tags=pl.lit("x|y")))
    top = ranker.catalog(ROWS.drop("tags")).top({"tags": "x|y"}, k=50)
    np.testing.assert_allclose(top.probabilities, expected[top.indices], atol=2e-6)
    with pytest.raises(fm2.Fm2Error, match=r"catalog: .* \('trees', 'user_device'\), so candidates cannot"):
        compiled["fmfm"].ranker(context=["user"]).catalog(ROWS.drop("user"))


def test_explanations_name_trees(compiled):
    explanation = compiled["fmfm"].explain(ROWS.to_dicts()[0])
    assert "trees" in explanation.fields
    assert ("trees", "item") in explanation.pairs


def test_warm_starts_keep_the_trees(runs, dataset, tmp_path):
    newer = log_of(800, seed=9).with_columns(user=pl.lit("u") + pl.int_range(800).mod(55).cast(pl.String))
    later = fm2.prepare(newer, dataset, tmp_path / "later")
    run = fm2.train("lr", later, tmp_path / "run", start=runs["lr"], learn=False)
    known = ROWS.filter(pl.Series((dataset.encode(ROWS).ids[:, [0, 2, 6]] > 0).all(axis=1)))
    np.testing.assert_allclose(run.predict(known), runs["lr"].predict(known), atol=1e-6)
    other = fm2.prepare(newer, SCHEMA, tmp_path / "other")
    with pytest.raises(fm2.Fm2Error, match="buckets the field 'trees' differently"):
        runs["lr"].evaluate(other)
