"""Compiled models with multi-valued fields: every plan computes the sums over all values, literally."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pytest
from tests.helpers.list_models import compiled, literal_logits, make_weights, pair_terms
from tests.helpers.lists import random_rows, values_of

import fm2
from fm2.compression import spectrum
from fm2.data.rows import EncodedRows, Lists
from fm2.engine.compile import draw_rows
from fm2.engine.matrix_plans import cached_features, field_orders
from fm2.engine.plans import lookups

SIZES, LISTS = [7, 30, 5, 40, 12], [1, 4]
EQUAL, MIXED = [5] * 5, [3, 16, 1, 9, 4]
MODELS = {
    "lr": ("lr", EQUAL, "auto"),
    "poly2": ("poly2", EQUAL, "auto"),
    "fm": ("fm", EQUAL, "auto"),
    "ffm": ("ffm", [3] * 5, "auto"),
    "fwfm direct": ("fwfm", [9] * 5, "direct"),
    "fwfm cached": ("fwfm", [9] * 5, "cached"),
    "fvfm": ("fvfm", [4] * 5, "cached"),
    "fmfm direct": ("fmfm", MIXED, "direct"),
    "fmfm cached": ("fmfm", MIXED, "cached"),
    "fmfm some cached": ("fmfm", MIXED, "some cached"),
    "fmfm spectral": ("fmfm", MIXED, "spectral"),
    "fmfm wide spectral": ("fmfm", [16] * 5, "spectral"),
}
TOLERANCES = {"f32": 1e-5, "f16": 5e-3, "i8": 0.15}


def make(kind, folder, dtype="f32", **settings):
    name, dims, plan = MODELS[kind]
    weights = make_weights(name, dims, SIZES, LISTS, **settings)
    some = {"plan": "cached", "memory": 2000} if plan == "some cached" else {"plan": plan}
    return weights, compiled(weights, folder, dtype=dtype, **some)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
def test_logits_are_sums_over_all_values(tmp_path, kind, dtype, level):
    weights, scorer = make(kind, tmp_path, dtype)
    for weighted in (True, False):
        rows = random_rows(SIZES, LISTS, 70, weighted=weighted, longest=5)
        logits = np.empty(len(rows), np.float32)
        scorer.native.score(rows.ids, logits, 1, level, rows.native_lists())
        scale = 1 + np.abs(literal_logits(weights, rows))
        assert (np.abs(logits - literal_logits(weights, rows)) / scale).max() < TOLERANCES[dtype]
        np.testing.assert_allclose(scorer.logits(rows.compact()), logits, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(scorer.logits(rows[20:]), scorer.logits(rows)[20:])


def test_the_reference_agrees_with_the_blocks_of_the_model(tmp_path):
    weights, _ = make("fmfm direct", tmp_path)
    rows = random_rows(SIZES, LISTS, 40)
    np.testing.assert_allclose(spectrum.exact_logits(weights, rows), literal_logits(weights, rows), rtol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_long_lists_are_scored_completely(tmp_path, kind):
    weights, scorer = make(kind, tmp_path)
    rows = random_rows(SIZES, LISTS, 12, longest=300)
    expected = literal_logits(weights, rows)
    np.testing.assert_allclose(scorer.logits(rows), expected, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("kind", MODELS)
def test_an_empty_list_contributes_nothing(tmp_path, kind):
    weights, scorer = make(kind, tmp_path)
    ids = np.array([[1, 0, 1, 1, 0]], np.int32)
    rows = EncodedRows(ids, {1: Lists.of([[]]), 4: Lists.of([[]])})
    assert scorer.logits(rows)[0] == pytest.approx(literal_logits(weights, rows)[0], abs=1e-5)
    single = EncodedRows(ids, {1: Lists.of([[3]]), 4: Lists.of([[7]])})  # like a single-valued field
    assert scorer.logits(single)[0] == pytest.approx(literal_logits(weights, single)[0], abs=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kind", MODELS)
def test_contributions_of_values_add_up(tmp_path, kind, dtype):
    _, scorer = make(kind, tmp_path, dtype)
    rows = random_rows(SIZES, LISTS, 6)
    for index in range(len(rows)):
        row = rows[index : index + 1]
        explanation = scorer.explain(row)
        assert explanation.logit == pytest.approx(float(scorer.logits(row)[0]), rel=1e-4, abs=1e-4)
        assert list(explanation.values) == ["f1", "f4"]
        for field, values in explanation.values.items():
            number = int(field[1])
            expected = values_of(row, number)[0]
            assert [value.weight for value in values] == [weight for _, weight in expected]
            texts = scorer.encoder.vocabularies[number]
            assert [value.value for value in values] == [texts.value(id) for id, _ in expected]
            pairs = sum(term for pair, term in explanation.pairs.items() if field in pair)
            assert sum(value.linear for value in values) == pytest.approx(explanation.fields[field], abs=1e-5)
            assert sum(value.pairs for value in values) == pytest.approx(pairs, abs=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in MODELS if "spectral" not in kind])
def test_contributions_are_those_of_the_model(tmp_path, kind):
    weights, scorer = make(kind, tmp_path)
    row = random_rows(SIZES, LISTS, 4)[2:3]
    explanation = scorer.explain(row)
    values = [values_of(row, field)[0] for field in range(5)]
    by_value = {"f1": np.zeros(len(values[1])), "f4": np.zeros(len(values[4]))}
    for i, j in combinations(range(5), 2):
        terms = list(pair_terms(weights, values, i, j))
        assert explanation.pairs[f"f{i}", f"f{j}"] == pytest.approx(sum(term for *_, term in terms), abs=1e-5)
        for p, q, term in terms:
            for field, place in ((f"f{i}", p), (f"f{j}", q)):
                if field in by_value:
                    by_value[field][place] += term
    for field, expected in by_value.items():
        np.testing.assert_allclose([value.pairs for value in explanation.values[field]], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("context", [[0, 1], [1, 4], [2, 3], [4, 0], [0, 1, 3, 4]])
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "poly2"])
def test_ranking_agrees_with_scoring(tmp_path, kind, context, dtype):
    _, scorer = make(kind, tmp_path, dtype)
    rows = random_rows(SIZES, LISTS, 150).compact()
    rows.ids[:, context] = rows.ids[0, context]
    expected = scorer.predict(rows)
    ranker = scorer.ranker(context=[f"f{field}" for field in context])
    sides = [sorted(context), [field for field in range(5) if field not in context]]
    first, candidates = (
        EncodedRows(
            np.ascontiguousarray(rows.ids[:, side]),
            {place: rows.lists[field] for place, field in enumerate(side) if field in rows.lists},
        )
        for side in sides
    )
    ranked = ranker.rank(first[:1], candidates)
    rounded = 2e-5 if dtype == "f32" else 2e-2  # cached products are rounded separately
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=rounded)
    catalog = ranker.catalog(candidates)
    top = catalog.top(first[:1], k=20)
    np.testing.assert_allclose(top.probabilities, ranked.probabilities[:20], atol=2e-5)


def test_rows_without_the_right_lists_are_rejected(tmp_path):
    _, scorer = make("fm", tmp_path)
    rows = random_rows(SIZES, LISTS, 3)
    with pytest.raises(fm2.Fm2Error, match="predict: field 'f1' has several features per row; pass raw values, or"):
        scorer.predict(rows.ids)
    with pytest.raises(fm2.Fm2Error, match="predict: field 'f0' has one feature per row, not lists"):
        scorer.predict(EncodedRows(rows.ids, {**rows.lists, 0: rows.lists[1]}))
    with pytest.raises(fm2.Fm2Error, match="explain: expected one row, got 3"):
        scorer.explain(rows)
    ranker = scorer.ranker(context=["f1"])
    with pytest.raises(fm2.Fm2Error, match="rank: field 'f4' has several features per row"):
        ranker.catalog(np.zeros((2, 4), np.int32))
    for lists, message in (
        ([], "field 1 is multi-valued, but the rows have no lists for it"),
        ([rows.lists[1].arrays()] * 5, "field 0 is not multi-valued, but the rows have lists for it"),
        ([None], "expected lists for 5 fields, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            scorer.native.score(rows.ids, np.empty(3, np.float32), 1, "", lists)


@pytest.mark.parametrize("kind", MODELS)
def test_lists_outside_their_arrays_are_rejected(tmp_path, kind):
    _, scorer = make(kind, tmp_path)
    rows = random_rows(SIZES, LISTS, 3).compact()

    def score(lists, number=1):
        changed = rows.ids.copy()
        changed[1, 1] = number
        return scorer.logits(EncodedRows(changed, {**rows.lists, 1: lists}))

    good = Lists.of([[1], [2, 3], [4]])
    score(good)
    for wrong in (-1, 3, 2**31 - 1):
        with pytest.raises(fm2.Fm2Error, match=f"row 1, field 1: there is no list {wrong}"):
            score(good, wrong)
    for wrong in (-1, 30, 2**31 - 1):
        with pytest.raises(fm2.Fm2Error, match=f"row 1 has id {wrong} in field 1; it must be between 0 and 29"):
            score(Lists.of([[1], [2, wrong], [4]]))
    for offsets in ([0, 1, 9, 4], [0, -1, 3, 4], [0, 3, 1, 4], [0, 2**62, 2**63 - 1, 4]):
        changed = dataclasses.replace(good, offsets=np.array(offsets, np.int64))
        with pytest.raises(fm2.Fm2Error, match=r"the offsets of list \d are out of range"):
            score(changed)


def test_lookups_are_estimated_from_frequencies():
    weights = make_weights("fm", EQUAL, SIZES, LISTS)
    vocabularies = [
        dataclasses.replace(vocabulary, counts=np.array([total] + [0] * (len(vocabulary.ends) - 1)))
        for vocabulary, total in zip(weights.vocabularies, [600, 3000, 400, 500, 900], strict=True)
    ]
    assert lookups(dataclasses.replace(weights, vocabularies=vocabularies)) == [1, 5, 1, 1, 1.5]
    assert lookups(make_weights("fm", EQUAL, SIZES, range(5)))[2] == 4
    assert lookups(make_weights("fm", EQUAL, SIZES, LISTS, max_values=1)) == [1] * 5


@pytest.mark.parametrize(("pooling", "power"), [("mean", 1), ("sqrt", 0.5), ("sum", 0)])
def test_drawn_lists_have_pooled_weights(pooling, power):
    weights = make_weights("fm", EQUAL, SIZES, LISTS, pooling=pooling)
    rows = draw_rows(weights, 500)
    lists = rows.lists[1]
    assert lists.sizes.mean() == pytest.approx(lookups(weights)[1], rel=0.2)
    np.testing.assert_allclose(lists.weights, np.repeat(lists.sizes, lists.sizes) ** -float(power), rtol=1e-6)


def test_fields_with_many_lookups_come_first_and_long_lists_are_not_cached():
    weights = make_weights("fmfm", [8] * 5, SIZES, LISTS)
    vocabularies = list(weights.vocabularies)
    vocabularies[4] = dataclasses.replace(vocabularies[4], counts=np.full(11, 10_000))
    weights = dataclasses.replace(weights, vocabularies=vocabularies)
    order = field_orders(weights)["by dimension"]
    assert order[0] == 4
    cached = cached_features(weights, [0, 1, 2, 3, 4], "f32", 1e9)
    assert cached == [7, 30, 5, 40, 0]  # a list of 70 values is cheaper to add up first
