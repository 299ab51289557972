"""Raw values of multi-valued fields: dicts, tables and texts are encoded and scored like the literal sums."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.helpers.list_models import compiled, literal_logits, make_weights

import fm2
from fm2.data.rows import EncodedRows, Lists

SIZES, LISTS = [7, 30, 5], [1, 2]
ROWS = [
    {"f0": "v1", "f1": "v3|v0|v3", "f2": ["v1"]},
    {"f0": "v0", "f1": ["v7", "never seen"], "f2": "v2|v0"},
    {"f0": None, "f1": None, "f2": []},
    {"f0": "v4", "f1": ("v1", "v2"), "f2": ["v0", "v1", "v2"]},
]
# Value k has the id k + 1; unknown is 0, and missing comes last.
VALUES = [[[4, 1, 4], [8, 0], [29], [2, 3]], [[2], [3, 1], [], [1, 2, 3]]]
POWERS = {"mean": 1.0, "sqrt": 0.5, "sum": 0.0}


def make(folder, pooling="mean", plan="cached", **settings):
    weights = make_weights("fmfm", [4, 9, 3], SIZES, LISTS, pooling=pooling, **settings)
    return weights, compiled(weights, folder, plan)


def encoded(values, power):
    ids = np.array([[2, 0, 0], [1, 1, 1], [6, 2, 2], [5, 3, 3]], np.int32)
    pooled = [Lists.of(lists, [[max(len(list), 1) ** -power] * len(list) for list in lists]) for lists in values]
    return EncodedRows(ids, {1: pooled[0], 2: pooled[1]})


@pytest.mark.parametrize("pooling", POWERS)
@pytest.mark.parametrize("plan", ["direct", "cached", "spectral"])
def test_dicts_are_pooled_and_scored(tmp_path, plan, pooling):
    weights, scorer = make(tmp_path, pooling, plan)
    rows = encoded(VALUES, POWERS[pooling])
    expected = literal_logits(weights, rows)
    np.testing.assert_allclose(scorer.logits(ROWS), expected, atol=1e-5)
    np.testing.assert_allclose(scorer.logits(rows), expected, atol=1e-5)
    for row, logit in zip(ROWS, expected, strict=True):
        assert scorer.predict_one(row) == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
        assert scorer.explain(row).logit == pytest.approx(logit, abs=1e-5)


def test_encode_returns_rows_with_lists(tmp_path):
    _, scorer = make(tmp_path, "sum")
    rows = scorer.encode(ROWS)
    assert isinstance(rows, EncodedRows)
    assert [
        rows.lists[1].ids[begin:end].tolist() for begin, end in zip([0, 3, 5, 6], [3, 5, 6, 8], strict=True)
    ] == VALUES[0]
    assert rows.lists[2].sizes.tolist() == [1, 2, 0, 3]
    assert scorer.encode([]).lists.keys() == {1, 2}
    assert (
        len(
            scorer.predict(
                pl.DataFrame({"f0": [], "f1": [], "f2": []}, schema=dict.fromkeys(("f0", "f1", "f2"), pl.String))
            )
        )
        == 0
    )


def test_tables_with_texts_or_lists_score_like_dicts(tmp_path):
    _, scorer = make(tmp_path)
    expected = scorer.predict(ROWS)
    lists = [["v3", "v0", "v3"], ["v7", "never seen"], None, ["v1", "v2"]]
    others = [["v1"], ["v2", "v0"], [], ["v0", "v1", "v2"]]
    table = pl.DataFrame({"f0": [row["f0"] for row in ROWS], "f1": lists, "f2": others})
    np.testing.assert_allclose(scorer.predict(table), expected, atol=1e-6)
    np.testing.assert_allclose(scorer.predict(table.to_arrow()), expected, atol=1e-6)
    texts = table.with_columns(f1=pl.Series(["v3|v0|v3", "v7|never seen", None, "v1|v2"]))
    np.testing.assert_allclose(scorer.predict(texts), expected, atol=1e-6)
    np.testing.assert_allclose(scorer.predict(table.to_dict(as_series=False)), expected, atol=1e-6)


@pytest.mark.parametrize("context", ["f0", "f1", "f2"])
def test_candidates_may_be_dicts_and_tables_with_lists(tmp_path, context):
    _, scorer = make(tmp_path)
    ranker = scorer.ranker(context=[context])
    candidates = [{name: value for name, value in row.items() if name != context} for row in ROWS]
    expected = scorer.predict([{**candidate, context: ROWS[3][context]} for candidate in candidates])
    ranked = ranker.rank({context: ROWS[3][context]}, candidates)
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=1e-6)
    top = ranker.catalog(candidates).top({context: ROWS[3][context]}, k=4)
    np.testing.assert_allclose(top.probabilities, expected[top.indices], atol=1e-6)
    texts = {name: [_text(row[name]) for row in candidates] for name in candidates[0]}
    table = ranker.rank({context: ROWS[3][context]}, pl.DataFrame(texts))
    np.testing.assert_allclose(table.probabilities[:2], np.sort(table.probabilities)[::-1][:2])


def _text(value):
    return "|".join(value) if isinstance(value, list | tuple) else value


def test_list_settings_are_stored_in_the_file(tmp_path):
    settings = {"separator": ";", "max_values": 2, "keep": "last", "weighted": True, "empty_is_missing": True}
    weights, scorer = make(tmp_path, "mean", **settings)
    rows = scorer.encode([{"f0": "v1", "f1": "v1:9;v3:3;v0:1", "f2": []}])
    assert rows.lists[1].ids.tolist() == [4, 1]
    assert rows.lists[1].weights.tolist() == [0.75, 0.25]
    assert rows.lists[2].ids.tolist() == [4]  # missing
    file_rows = scorer.encoder.encode([{"f0": "v1", "f1": "v1:9;v3:3;v0:1", "f2": []}])
    np.testing.assert_allclose(scorer.logits(file_rows), literal_logits(weights, rows), atol=1e-5)


def test_weights_may_have_a_column(tmp_path):
    weights, scorer = make(tmp_path, "sum", weight_column="w")
    assert scorer.columns == ["f0", "f1", "w", "f2"]
    rows = scorer.encode([{"f0": "v1", "f1": "v1|v2", "w": "0.5|4", "f2": "v0|v1"}])
    assert rows.lists[1].weights.tolist() == [0.5, 4]
    assert scorer.ranker(context=["f0"]).rank(
        {"f0": "v1"}, [{"f1": "v1|v2", "w": "0.5|4", "f2": "v0"}]
    ).indices.tolist() == [0]
    with pytest.raises(fm2.Fm2Error, match="rank: column 'w' has the weights of 'f1', but is on the other side"):
        scorer.ranker(context=["f0", "w"])
    assert weights.schema == scorer.schema


def test_explain_names_the_values(tmp_path):
    _, scorer = make(tmp_path)
    values = scorer.explain(ROWS[1]).values
    assert [(value.value, value.weight) for value in values["f1"]] == [("v7", 0.5), ("<unknown>", 0.5)]
    assert [value.value for value in scorer.explain(ROWS[2]).values["f1"]] == [None]
    assert scorer.explain(ROWS[2]).values["f2"] == []


def test_explain_shows_missing_values_that_training_did_not_have(tmp_path):
    log = pl.DataFrame(
        {"click": [0, 1] * 20, "site": ["a", "b"] * 20, "price": [1.5, 2] * 20, "tags": ["x|y", "x"] * 20}
    )
    fields = [fm2.Field("site", min_count=1), fm2.Field("price", "numeric"), fm2.Field("tags", multivalued=True)]
    dataset = fm2.prepare(log, fm2.Schema(fields, label="click", missing=["NA"]), tmp_path / "data")
    fm2.train("fm", dataset, out=tmp_path / "run", epochs=1, threads=1)
    fm2.compile(tmp_path / "run", tmp_path / "model.fm2")
    scorer = fm2.load(tmp_path / "model.fm2")
    for missing in ({"site": "NA"}, {"site": None, "price": float("nan")}, {"site": "", "tags": None}):
        explanation = scorer.explain(missing)
        assert explanation.row == {"site": None, "price": None}
        assert [value.value for value in explanation.values["tags"]] == [None]
    explanation = scorer.explain({"site": "new", "price": "abc", "tags": ["new"]})
    assert explanation.row == {"site": "<unknown>", "price": "<unknown>"}
    assert [value.value for value in explanation.values["tags"]] == ["<unknown>"]
    with pytest.raises(fm2.Fm2Error, match="explain: column 'site': a value is a list; only multi-valued fields may"):
        scorer.explain({"site": ["a"]})


@pytest.mark.parametrize("candidate", [["f1"], ["f1", "f2"]])
def test_candidates_may_be_tables_of_lists_only(tmp_path, candidate):
    _, scorer = make(tmp_path)
    table = pl.DataFrame({"f1": [["v3"], ["v7", "v0"], None], "f2": [["v1"], [], ["v2"]]}).select(candidate)
    context = {name: value for name, value in ROWS[0].items() if name not in candidate}
    ranked = scorer.ranker(candidate=candidate).rank(context, table)
    expected = scorer.predict([{**context, **row} for row in table.to_dicts()])
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=1e-6)
