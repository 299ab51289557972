"""Mutual information between field pairs and the label, against its definition, and its expectation under chance."""

from __future__ import annotations

from math import comb, log
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.lists import random_rows, values_of

from fm2 import Field, Fm2Error, Schema
from fm2.data.rows import EncodedRows, Lists
from fm2.studies.reporting import mutual_information
from fm2.studies.reporting.fields import NUMBER_BUCKETS, bucket_numbers
from fm2.studies.reporting.mutual_information import draw_values, information_and_chance, rank_correlation


def by_definition(cells: list, labels: np.ndarray) -> float:
    """Sum p(x, y) ln(p(x, y) / p(x) p(y)) over all cells."""
    total, information = len(labels), 0.0
    for cell in set(cells):
        in_cell = np.array([other == cell for other in cells])
        for y in (0, 1):
            joint = np.count_nonzero(in_cell & (labels == y)) / total
            if joint:
                information += joint * np.log(joint / (in_cell.mean() * np.mean(labels == y)))
    return information


def by_chance(cells: list, labels: np.ndarray) -> float:
    """Average over all permutations of the labels: the number of clicks in a cell is hypergeometric."""
    total, clicks, information = len(labels), int(labels.sum()), 0.0
    for cell in set(cells):
        n = cells.count(cell)
        for k in range(max(0, n - total + clicks), min(n, clicks) + 1):
            probability = comb(clicks, k) * comb(total - clicks, n - k) / comb(total, n)
            for joint, all_of_label in ((k, clicks), (n - k, total - clicks)):
                if joint:
                    information += probability * joint / total * log(joint * total / (n * all_of_label))
    return information


@st.composite
def logs(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 7, 60, 5000]), min_size=1, max_size=4))
    rows, seed, rate = draw(st.integers(1, 60)), draw(st.integers(0, 999)), draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    random = np.random.default_rng(seed)
    ids = np.stack([(random.random(rows) ** 2 * size).astype(np.int32) for size in sizes], axis=1)
    return ids, (random.random(rows) < rate).astype(np.uint8), sizes


@settings(deadline=None)
@given(logs(), st.integers(1, 3))
def test_it_matches_its_definition(log, threads):
    ids, labels, sizes = log
    information, chance = information_and_chance(ids, labels, sizes, threads)
    for i in range(len(sizes)):
        for j in range(len(sizes)):
            cells = [(row[i], row[j]) for row in ids.tolist()]
            assert information[i, j] == pytest.approx(by_definition(cells, labels), abs=1e-12)
            assert chance[i, j] == pytest.approx(by_chance(cells, labels), abs=1e-12)
    np.testing.assert_array_equal(information - chance, mutual_information(ids, labels, sizes, corrected=True))


def test_many_rows_with_mostly_rare_values():
    """Compare with counts of sorted keys, in 50,000 rows whose cells are large, small and single."""
    random = np.random.default_rng(1)
    rows, sizes = 50_000, [4, 300, 40_000]
    ids = np.stack([(random.random(rows) ** 4 * size).astype(np.int32) for size in sizes], axis=1)
    labels = (random.random(rows) < 0.2 + 0.3 * (ids[:, 0] == 1)).astype(np.uint8)
    information = mutual_information(ids, labels, sizes)
    for i in range(3):
        for j in range(3):
            _, cell = np.unique(ids[:, i].astype(np.int64) * sizes[2] + ids[:, j], return_inverse=True)
            counts = np.stack([np.bincount(cell, labels == y) for y in (0, 1)])
            joint = counts / rows
            outer = joint.sum(axis=0) * joint.sum(axis=1)[:, None]
            expected = np.sum(joint * np.log(np.where(joint, joint / outer, 1)))
            assert information[i, j] == pytest.approx(expected, abs=1e-12)
    for threads in (2, 3):
        np.testing.assert_array_equal(mutual_information(ids, labels, sizes, threads), information)


def test_chance_is_the_mean_over_shuffled_labels():
    random = np.random.default_rng(2)
    ids = (random.random((3000, 2)) ** 2 * 40).astype(np.int32)
    labels = (random.random(3000) < 0.3).astype(np.uint8)
    _, chance = information_and_chance(ids, labels, [40, 40])
    shuffled = [mutual_information(ids, random.permutation(labels), [40, 40]) for _ in range(200)]
    np.testing.assert_allclose(np.mean(shuffled, axis=0), chance, rtol=0.08)  # 5 standard errors


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        ([[0], [2]], [0, 1], "row 1, field 0: the id must be between 0 and 1, got 2"),
        ([[0], [-1]], [0, 1], "row 1, field 0: the id must be between 0 and 1, got -1"),
        ([[0], [1]], [0, 3], "the label of row 1 must be 0 or 1, got 3"),
        ([[0], [1]], [0, 256], "expected uint8 values, got values from 0 to 256"),
        ([[0.5], [1.0]], [0, 1], "expected integers, got float64 values"),
        ([[0], [1]], [0], "expected a label for each of the 2 rows, got 1"),
        ([[0, 0]], [0], "expected a size for each of the 2 fields, got 1"),
        ([0, 1], [0, 1], r"expected ids of shape \[rows, fields\] and labels of shape \[rows\], got \[2\] and \[2\]"),
    ],
)
def test_invalid_input_is_an_error(ids, labels, message):
    with pytest.raises(Fm2Error, match=message):
        mutual_information(ids, labels, [2])
    with pytest.raises(Fm2Error, match="threads must be between 1 and 1024, or 0 for all, got -1"):
        mutual_information([[0]], [0], [2], threads=-1)
    with pytest.raises(Fm2Error, match=r"the size of field 0 must be between 1 and 2\^30, got 0"):
        mutual_information([[0]], [0], [0])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_the_correlation_of_mean_ranks(pairs):
    a, b = ([sum(x < y for x in c) + (sum(x == y for x in c) + 1) / 2 for y in c] for c in zip(*pairs, strict=True))
    correlation = rank_correlation(*zip(*pairs, strict=True))
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert correlation is None
    else:
        assert correlation == pytest.approx(np.corrcoef(a, b)[0, 1])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_list_counts_with_a_random_value(weighted):
    """Each value is drawn in proportion to its absolute weight; an empty list is a value of its own."""
    rows = random_rows([4, 6], list_fields=[1], rows=30, weighted=weighted)
    draws = np.stack([draw_values(rows, [4, 6], seed)[:, 1] for seed in range(4000)])
    for values, drawn in zip(values_of(rows, 1), draws.T, strict=True):
        shares = np.zeros(7)
        for id, weight in values:
            shares[id] += abs(weight)
        shares = shares / shares.sum() if values else np.eye(7)[6]
        np.testing.assert_allclose(np.bincount(drawn, minlength=7) / 4000, shares, atol=0.04)  # 5 standard errors
    np.testing.assert_array_equal(draw_values(rows, [4, 6])[:, 0], rows.ids[:, 0])


def test_the_information_of_lists_follows_the_definition():
    rows, labels = random_rows([4, 6, 5], list_fields=[0, 2], rows=400), np.arange(400) % 3 == 0
    drawn = draw_values(rows, [4, 6, 5]).tolist()
    information = mutual_information(rows, labels, [4, 6, 5])
    for i in range(3):
        for j in range(3):
            cells = [(row[i], row[j]) for row in drawn]
            assert information[i, j] == pytest.approx(by_definition(cells, labels), abs=1e-12)


def test_lists_that_contain_the_label_are_informative():
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 5000).astype(np.uint8)
    values = [[int(label), *random.integers(2, 8, 2)] for label in labels]  # one of three values is the label
    ids = np.stack([random.integers(0, 3, 5000), np.arange(5000)], axis=1).astype(np.int32)
    rows = EncodedRows(ids, {1: Lists.of(values)})
    information = mutual_information(rows, labels, [3, 8], corrected=True)
    assert information[0, 0] == pytest.approx(0, abs=1e-3)
    assert information[1, 1] == pytest.approx(np.log(2) / 3, abs=0.02)


def test_linear_numbers_are_divided_into_buckets():
    numbers = np.random.default_rng(4).normal(size=1000).astype(np.float32)
    lists = Lists(np.arange(1001), np.ones(1000, np.int32), numbers)
    rows = EncodedRows(np.arange(1000, dtype=np.int32)[::-1, None].copy(), {0: lists})
    data = SimpleNamespace(schema=Schema([Field("price", "numeric", transform="linear")], label="y"), field_sizes=[2])
    bucketed, sizes = bucket_numbers(rows, data)
    ids = bucketed.lists[0].ids
    assert sizes == [2 * NUMBER_BUCKETS]
    assert set(np.bincount(ids - NUMBER_BUCKETS).tolist()) == {1000 // NUMBER_BUCKETS}
    assert (np.diff(ids[np.argsort(numbers[::-1], kind="stable")]) >= 0).all()
    labels = (numbers[::-1] > 0).astype(np.uint8)
    assert mutual_information(bucketed, labels, sizes)[0, 0] > 0.6
