"""Crosses in trained and compiled models: the same scores from raw values, ids, rankings and the C interface."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.helpers.crosses import CROSSES, SCHEMA, log_of

import fm2
from fm2.engine.compile import compile
from fm2.engine.scorer import load

MODELS = {"lr": {}, "fm": {"dim": 5}, "ffm": {"dim": 3}, "fmfm": {"dim": 4}}
ROWS = log_of(400, seed=3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fm2.prepare(log_of(2000), SCHEMA, tmp_path_factory.mktemp("crosses") / "data")


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: fm2.train(name, dataset, folder / name, epochs=2, batch_size=64, learning_rate=0.02, **settings)
        for name, settings in MODELS.items()
    }


@pytest.fixture(scope="module")
def compiled(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: load(compile(run.path, folder / f"{name}.fm2").path) for name, run in runs.items()}


@pytest.mark.parametrize("name", MODELS)
def test_raw_values_and_ids_have_the_same_scores(runs, compiled, dataset, name):
    run, scorer = runs[name], compiled[name]
    encoded = dataset.encode(ROWS)
    expected = scorer.predict(encoded)
    np.testing.assert_allclose(expected, run.predict(encoded), atol=1e-5)
    np.testing.assert_array_equal(scorer.encode(ROWS).ids, encoded.ids)
    np.testing.assert_array_equal(scorer.encode(ROWS.to_dicts()).ids, encoded.ids)
    np.testing.assert_array_equal(scorer.predict(ROWS), expected)
    np.testing.assert_array_equal([scorer.predict_one(row) for row in ROWS.to_dicts()], expected)
    np.testing.assert_array_equal(scorer.predict(scorer.encoder.encode_rows(ROWS)), expected)  # from the file's texts


def test_the_ids_of_crosses_are_used_as_given(compiled, dataset):
    scorer = compiled["lr"]
    encoded = dataset.encode(ROWS)
    without = encoded.ids.copy()
    without[:, SCHEMA.names.index("user_item")] = 0
    changed = scorer.predict(fm2.EncodedRows(without, encoded.lists))
    assert np.abs(changed - scorer.predict(encoded)).max() > 0.01


def test_explanations_name_crosses(compiled):
    scorer = compiled["fmfm"]
    row = ROWS.to_dicts()[0]
    explanation = scorer.explain(row)
    assert set(CROSSES) <= set(explanation.fields)
    assert ("user_item", "user") in explanation.pairs
    assert explanation.logit == pytest.approx(scorer.logits([row])[0], abs=1e-4)
    without = {name: value for name, value in row.items() if name != "item"}
    assert scorer.explain(without).row["user_item"] == "u1 × missing"  # occurs in training
    assert scorer.explain({**without, "user": "new"}).row["user_item"] is None  # does not, and has no item
    assert scorer.explain({**row, "item": "new"}).row["user_item"] == "<unknown>"


SIDES = [["user", "time"], ["item"], ["device", "cost"], ["user", "item", "cost", "visits", "device", "time"]]


@pytest.mark.parametrize("context", SIDES)
@pytest.mark.parametrize("name", MODELS)
def test_ranked_candidates_have_the_probabilities_of_complete_rows(compiled, dataset, name, context):
    scorer = compiled[name]
    ranker = scorer.ranker(context=context)
    one = {column: ROWS[column][1] for column in context}
    complete = ROWS.with_columns(**{column: pl.lit(one[column]) for column in context})
    expected = scorer.predict(complete)
    candidates = ROWS.drop(*context)
    for given in (candidates, candidates.to_dicts()):
        ranked = ranker.rank(one, given)
        np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=2e-6)
    # Ids of crosses between the sides are not read.
    fields = [SCHEMA.names.index(name) for name in SCHEMA.names if not _is_context(name, context)]
    others = [field for field in range(len(SCHEMA.fields)) if field not in fields]
    encoded = dataset.encode(complete)
    ids = encoded.ids.copy()
    for field in fields:
        if any(_is_context(part, context) for part in SCHEMA.fields[field].cross):
            ids[:, field] = 10**6
    lists = {fields.index(field): table for field, table in encoded.lists.items()}
    rows = fm2.EncodedRows(np.ascontiguousarray(ids[:, fields]), lists)
    again = ranker.rank(np.ascontiguousarray(encoded.ids[0, others]), rows)
    np.testing.assert_allclose(again.probabilities, expected[again.indices], atol=2e-6)


def _is_context(name: str, context: list[str]) -> bool:
    field = SCHEMA.fields[SCHEMA.names.index(name)]
    return all(_is_context(part, context) for part in field.cross) if field.cross else field.column in context


def test_calibration_by_a_cross_of_both_sides(runs, dataset, tmp_path):
    run = fm2.train("lr", dataset, tmp_path / "run", epochs=1)
    fm2.calibrate(run, dataset, by="user_item", split="train")
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    user = ROWS["user"][0]
    expected = scorer.predict(ROWS.with_columns(user=pl.lit(user)))
    ranked = scorer.ranker(context=["user"]).rank({"user": user}, ROWS.drop("user"))
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=2e-6)


def test_a_catalog_has_no_crosses_of_both_sides(compiled, tmp_path):
    ranker = compiled["fm"].ranker(context=["user"])
    message = r"catalog: .* are combined \('user_item', 'user_cost_device', 'hashed_device'\).*; rank rows instead"
    with pytest.raises(fm2.Fm2Error, match=message):
        ranker.catalog(ROWS.drop("user"))
    with pytest.raises(fm2.Fm2Error, match=message):
        ranker.load_catalog(tmp_path / "items.fm2")


def test_a_catalog_has_crosses_of_the_candidates(dataset, tmp_path):
    fields = [fm2.Field(name, min_count=1) for name in ("user", "item", "device")]
    crosses = [fm2.Field("item_device", cross=["item", "device"], min_count=1)]
    data = fm2.prepare(log_of(2000), fm2.Schema([*fields, *crosses], label="click"), tmp_path / "data")
    run = fm2.train("fmfm", data, tmp_path / "run", epochs=1, dim=4)
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    rows = ROWS.select("user", "item", "device")
    ranker = scorer.ranker(candidate=["item", "device"])
    expected = scorer.predict(rows.with_columns(user=pl.lit("u1")))
    top = ranker.catalog(rows.drop("user")).top({"user": "u1"}, k=50)
    np.testing.assert_allclose(top.probabilities, expected[top.indices], atol=2e-6)
    with pytest.raises(ValueError, match="field 3 is a cross with a field of the candidates"):
        fm2._native.Ranking(scorer.native, [0, 1, 3])


def test_a_warm_start_keeps_the_weights_of_combinations(runs, dataset, tmp_path):
    new = log_of(500, seed=11).with_columns(item=pl.Series(["b", "new", "a", "newer"] * 125))
    later = fm2.prepare(new, dataset, tmp_path / "later")
    run = fm2.train("lr", later, tmp_path / "run", start=runs["lr"], learn=False)
    single = [index for index, field in enumerate(SCHEMA.fields) if not field.is_list]
    rows = ROWS.filter((dataset.encode(ROWS).ids[:, single] > 0).all(axis=1))  # what was unknown may now be known
    assert len(rows) > 50
    assert (later.encode(rows).ids[:, single] != dataset.encode(rows).ids[:, single]).any(axis=0).sum() > 5
    np.testing.assert_allclose(run.predict(rows), runs["lr"].predict(rows), atol=1e-6)
    tested = runs["lr"].predict(new[later.test.rows.tolist()])
    loss = -np.log(np.where(later.test.labels, tested, 1 - tested)).mean()
    assert runs["lr"].evaluate(later, "test")["log_loss"] == pytest.approx(loss, abs=1e-5)


def test_onnx_takes_the_ids_of_crosses(runs, dataset, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    fm2.export_onnx(runs["fmfm"], tmp_path / "model.onnx")
    encoded = dataset.encode(ROWS)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    outputs = session.run(None, fm2.onnx_inputs(encoded, dataset.schema.names))
    np.testing.assert_allclose(outputs[0].ravel(), runs["fmfm"].predict(encoded), atol=1e-5)
