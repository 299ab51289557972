"""Tables with multi-valued fields and shared rows: gathers, logits and updates against their definitions in float64."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from tests.helpers.batches import loaded
from tests.helpers.lists import Values, random_rows, rows_of_values
from tests.helpers.tables import normal, rng

import fm2
from fm2 import _native
from fm2._native import Dropout, Optimizer
from fm2.data.rows import EncodedRows
from fm2.models import FlatEmbedding
from fm2.training.tables import EmbeddingTable, adagrad, adam, fm_logits, ftrl, load_batch, minibatch

SIZES = [12, 1, 40, 12]
LEVELS = fm2.cpu_info()["levels"]
levels = pytest.mark.parametrize("level", LEVELS)
dimensions = pytest.mark.parametrize("dims", [[1] * 4, [8] * 4, [3, 1, 17, 3], [16, 5, 40, 16]], ids=str)
ROWS = {
    "weighted": random_rows(SIZES, [0, 2], 90, longest=9, seed=1),
    "unweighted": random_rows(SIZES, [1, 2, 3], 90, weighted=False, seed=2),
    "all": random_rows(SIZES, [0, 1, 2, 3], 700, seed=3),
}
kinds = pytest.mark.parametrize("kind", ROWS)
owners = pytest.mark.parametrize("owners", [[0, 1, 2, 3], [0, 1, 2, 0], [3, 1, 2, 3]], ids=str)


def make(dims: list[int], optimizer: Optimizer, owners: list[int] | None = None, **options) -> EmbeddingTable:
    layout = FlatEmbedding(SIZES, dims, owners=owners)
    weights = normal(layout.weight.numel())
    return EmbeddingTable(SIZES, dims, optimizer, weights=weights, offsets=layout.offsets, **options)


def copy_of(table: EmbeddingTable, **options) -> EmbeddingTable:
    return EmbeddingTable(
        table.sizes, table.dims, table.optimizer, weights=table.weights, offsets=table.offsets, **options
    )


def begin_of(table: EmbeddingTable, field: int, id: int) -> int:
    return int(table.offsets[field]) + id * int(table.dims[field])


def pooled(table: EmbeddingTable, rows: list[list[Values]]) -> list[list[np.ndarray]]:
    """Return the weighted sum of every row's features, field by field."""
    sums = []
    for row in rows:
        sums.append([np.zeros(dim) for dim in table.dims])
        for field, values in enumerate(row):
            for id, weight in values:
                begin = begin_of(table, field, id)
                sums[-1][field] += weight * table.weights[begin : begin + table.dims[field]].astype(np.float64)
    return sums


def gradients(table: EmbeddingTable, rows: list[list[Values]], by_row: np.ndarray) -> dict[int, np.ndarray]:
    """Sum the gradients of all values of every feature, by where the feature's row begins."""
    sums: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(1))
    for row, gradient in zip(rows, by_row.astype(np.float64), strict=True):
        for field, values in enumerate(row):
            part = gradient[table.starts[field] : table.starts[field] + table.dims[field]]
            for id, weight in values:
                begin = begin_of(table, field, id)
                sums[begin] = sums[begin] + weight * part
    return sums


def assert_updated(table: EmbeddingTable, before: np.ndarray, sums: dict[int, np.ndarray], l2: float = 0.0) -> None:
    """Check one step of Adagrad without a history: it accumulates the squares of the gradients."""
    expected = np.zeros(len(before))
    for begin, gradient in sums.items():
        expected[begin : begin + len(gradient)] = gradient + l2 * before[begin : begin + len(gradient)]
    np.testing.assert_allclose(np.sqrt(table.state[0]), np.abs(expected), rtol=2e-4, atol=2e-4)
    assert np.array_equal(table.weights != before, table.state[0] > 0)


@levels
@dimensions
@kinds
@owners
def test_gather_and_update_by_rows(level: str, dims: list[int], kind: str, owners: list[int]) -> None:
    table, rows = make(dims, adagrad(0.1, l2=0.3), owners), ROWS[kind]
    batch, before, values = loaded(rows, SIZES), table.weights.copy(), rows_of_values(rows)
    out = np.empty((len(rows), table.width), dtype=np.float32)
    _native.gather(table.native, batch, out, level=level)
    expected = np.array([np.concatenate(row) for row in pooled(table, values)])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)

    gradient, slopes, other = normal(*out.shape), normal(len(rows)), copy_of(table)
    _native.update(batch, [table.update_by_rows(gradient)], 1, level=level)
    assert_updated(table, before, gradients(table, values, gradient), 0.3)
    _native.update(batch, [other.update_by_rows(gradient, None, slopes)], 1, level=level)
    assert_updated(other, before, gradients(table, values, gradient * slopes[:, None]), 0.3)


@levels
@kinds
def test_linear_logits_and_their_update(level: str, kind: str) -> None:
    table, rows = make([1] * 4, adagrad(0.1)), ROWS[kind]
    batch, before, values = loaded(rows, SIZES), table.weights.copy(), rows_of_values(rows)
    logits, slopes = np.empty(len(rows), np.float32), normal(len(rows))
    _native.linear_logits(table.native, batch, logits, level=level)
    np.testing.assert_allclose(logits, np.array(pooled(table, values)).sum(axis=(1, 2)), rtol=1e-4, atol=1e-5)
    _native.update(batch, [table.update_by_logits(slopes)], 1, level=level)
    assert_updated(table, before, gradients(table, values, np.repeat(slopes[:, None], 4, axis=1)))


@levels
@kinds
@owners
@pytest.mark.parametrize("dim", [1, 3, 8, 16, 33])
@pytest.mark.parametrize("signed", [False, True])
def test_a_factorization_machines_logits_and_step(
    level: str, kind: str, owners: list[int], dim: int, signed: bool
) -> None:
    rows = ROWS[kind]
    linear, factors = make([1] * 4, adagrad(0.1)), make([dim] * 4, adagrad(0.1), owners)
    batch, values = loaded(rows, SIZES), rows_of_values(rows)
    before, slopes = (linear.weights.copy(), factors.weights.copy()), normal(len(rows))
    logits, sums = np.empty(len(rows), np.float32), np.empty((len(rows), dim), np.float32)
    signs = np.where(np.arange(dim) % 3 == 1, -1, 1).astype(np.float32) if signed else None
    _native.fm_logits(linear.native, factors.native, batch, sums, logits, signs, level=level)

    v, w = np.array(pooled(factors, values)), np.array(pooled(linear, values)).sum(axis=(1, 2))
    s = np.ones(dim) if signs is None else signs
    pairs = [sum((row[i] * s) @ row[j] for i, j in combinations(range(4), 2)) for row in v]
    np.testing.assert_allclose(logits, w + pairs, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(sums, s * v.sum(axis=1), rtol=1e-4, atol=1e-4)

    others = slopes[:, None, None] * s * (v.sum(axis=1)[:, None] - v)
    updates = [linear.update_by_logits(slopes), factors.update_by_sums(slopes, sums, signs)]
    _native.update(batch, updates, 1, level=level)
    assert_updated(linear, before[0], gradients(linear, values, np.repeat(slopes[:, None], 4, axis=1)))
    found, expected = np.sqrt(factors.state[0]), np.zeros(len(before[1]))
    for begin, gradient in gradients(factors, values, others.reshape(len(rows), -1)).items():
        expected[begin : begin + dim] = np.abs(gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * expected.max())


@levels
@dimensions
def test_dropout_masks_the_weighted_sums_and_their_gradient(level: str, dims: list[int]) -> None:
    dropout, rows = Dropout(element=0.4, field=0.2, seed=3), ROWS["weighted"]
    table, batch = make(dims, adagrad(0.1)), loaded(rows, SIZES)
    plain, masked = np.empty((2, len(rows), table.width), dtype=np.float32)
    _native.gather(table.native, batch, plain, level=level)
    _native.gather(table.native, batch, masked, dropout, 7, level=level)
    ones = EmbeddingTable(SIZES, dims, weights=1)
    mask = ones.gather(loaded(EncodedRows(np.zeros_like(rows.ids)), SIZES), None, dropout, 7)
    assert (mask == 0).any()
    np.testing.assert_array_equal(masked, plain * mask)

    gradient, slopes, other = normal(*mask.shape), normal(len(rows)), copy_of(table)
    _native.update(batch, [table.update_by_rows(gradient, dropout, slopes)], 7, level=level)
    _native.update(batch, [other.update_by_rows(gradient * mask * slopes[:, None])], 7, level=level)
    np.testing.assert_allclose(table.weights, other.weights, rtol=1e-4, atol=1e-5)


def value_mask(rows: EncodedRows, dropout: Dropout, step: int, threads: int = 0) -> np.ndarray:
    """Find the factors of the weights of field 0's values: each has a feature of its own."""
    table = EmbeddingTable([len(rows.lists[0].ids), 1], 1, adagrad(1.0))
    batch = minibatch(table.sizes)
    load_batch(batch, rows, None, threads, dropout, step)
    _native.update(batch, [table.update_by_logits(np.ones(len(rows), np.float32))], 1)
    return np.sqrt(table.state[0][:-1])


def test_value_dropout_drops_values_by_seed_step_row_and_position() -> None:
    lists = fm2.data.rows.Lists(np.arange(0, 30_001, 10), np.arange(30_000, dtype=np.int32))
    ids = np.stack([np.arange(3000), np.zeros(3000)], axis=1).astype(np.int32)
    rows = EncodedRows(ids, {0: lists})
    factors = value_mask(rows, Dropout(value=0.3, seed=5), 7)
    assert np.unique(factors).tolist() == pytest.approx([0.0, 1 / 0.7])
    kept = factors.reshape(3000, 10) > 0
    assert kept.mean() == pytest.approx(0.7, abs=0.01)
    assert np.abs(kept.mean(axis=0) - 0.7).max() < 0.04
    both = (kept[:, 1:] & kept[:, :-1]).mean(), (kept[1:] & kept[:-1]).mean()
    assert both == pytest.approx((0.49, 0.49), abs=0.02)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(factors, value_mask(rows, Dropout(value=0.3, seed=5), 7, threads))
    assert (factors != value_mask(rows, Dropout(value=0.3, seed=5), 8)).any()
    assert (factors != value_mask(rows, Dropout(value=0.3, seed=6), 7)).any()
    np.testing.assert_array_equal(value_mask(rows, Dropout(), 7), 1)
    with pytest.raises(ValueError, match="dropout: a probability must be at least 0 and below 1, got 1"):
        Dropout(value=1.0)


@pytest.mark.parametrize("rule", [adagrad, adam, ftrl])
def test_results_do_not_depend_on_the_number_of_threads(rule: Callable[..., Optimizer]) -> None:
    optimizer, rows = rule(l2=0.01), random_rows(SIZES, [0, 2, 3], 3000, longest=12)
    dropout, order = Dropout(0.5, 0.1, seed=1, value=0.3), rng.permutation(3000)
    layouts = [FlatEmbedding(SIZES, dims, owners=[0, 1, 2, 0]) for dims in ([3, 1, 8, 3], [16] * 4)]
    start = [normal(layout.weight.numel()) for layout in layouts]
    gradient, slopes, first = normal(1000, 15), normal(1000), normal(sum(SIZES))
    outcomes = []
    for threads in (1, 2, 3):
        mixed, factors = (
            EmbeddingTable(SIZES, layout.dims, optimizer, weights=weights, offsets=layout.offsets, decay=0.9)
            for layout, weights in zip(layouts, start, strict=True)
        )
        linear = EmbeddingTable(SIZES, 1, optimizer, weights=first)
        batch, seen = minibatch(SIZES), []
        for step in range(1, 4):
            load_batch(batch, rows, order[1000 * (step - 1) : 1000 * step], threads, dropout, step)
            seen.append(mixed.gather(batch, dropout=dropout, step=step, threads=threads))
            logits, sums = fm_logits(linear, factors, batch, threads)
            seen += [logits, sums]
            updates = [
                mixed.update_by_rows(gradient, dropout),
                linear.update_by_logits(slopes),
                factors.update_by_sums(slopes, sums),
            ]
            _native.update(batch, updates, step, threads)
        seen += [mixed.finish_average(3, threads), mixed.weights, linear.weights, factors.weights, *factors.state]
        outcomes.append(b"".join(array.tobytes() for array in seen))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_weights_that_are_zero_can_stay_zero() -> None:
    table, rows = make([3, 1, 8, 3], adam(0.1), [0, 1, 2, 0], keep_zeros=True), ROWS["weighted"]
    zeros = rng.random(len(table.weights)) < 0.5
    table.weights[zeros] = 0
    free = copy_of(table)
    batch = loaded(rows, SIZES)
    for step in (1, 2):
        gradient = normal(len(rows), table.width)
        _native.update(batch, [table.update_by_rows(gradient), free.update_by_rows(gradient)], step)
    assert np.array_equal(table.weights == 0, zeros)
    np.testing.assert_array_equal(table.weights[~zeros], free.weights[~zeros])
    assert (free.weights[zeros] != 0).any()


def test_shared_rows_need_the_same_shape_and_the_same_fields_in_all_tables() -> None:
    for offsets, dims, sizes in (([0, 0], [2, 3], [3, 3]), ([0, 0], [2, 2], [3, 4]), ([0, 4], [2, 2], [3, 3])):
        with pytest.raises(ValueError, match="layout: field 1 overlaps with another field"):
            _native.Layout(np.array(offsets), np.array(dims, np.int32), np.array(sizes, np.int32))
    layout = _native.Layout(np.array([6, 0, 6]), np.array([2] * 3, np.int32), np.array([3] * 3, np.int32))
    assert (layout.features, layout.floats, layout.width) == (6, 12, 6)

    tables = [
        EmbeddingTable([3] * 3, 2, adagrad(), offsets=FlatEmbedding([3] * 3, 2, owners=owners).offsets)
        for owners in ([0, 0, 2], [0, 1, 0])
    ]
    batch = loaded(np.zeros((4, 3), np.int32), [3] * 3)
    with pytest.raises(ValueError, match="all tables with shared rows must share those of the same fields"):
        _native.update(batch, [table.update_by_rows(normal(4, 6)) for table in tables], 1)


def test_a_shared_features_l2_is_that_of_its_first_field() -> None:
    layout = FlatEmbedding([2, 3, 2], 1, owners=[0, 1, 0])
    scale = layout.per_feature(np.array([1, 2, 3, 4, 5, 6, 7], np.float32))
    assert scale.tolist() == [7, 9, 3, 4, 5]
    table = EmbeddingTable([2, 3, 2], 1, adagrad(1.0, l2=0.5), weights=1, l2_scale=scale, offsets=layout.offsets)
    rows = EncodedRows(np.array([[0, 0, 1]], np.int32))
    _native.update(loaded(rows, [2, 3, 2]), [table.update_by_logits(np.zeros(1, np.float32))], 1)
    np.testing.assert_allclose(np.sqrt(table.state[0]), [3.5, 4.5, 1.5, 0, 0])


def test_an_average_counts_a_shared_row_once() -> None:
    table = make([3, 1, 8, 3], adagrad(0.2), [0, 1, 2, 0], decay=0.9)
    average, batch = np.zeros(len(table.weights)), minibatch(SIZES)
    for step in range(1, 30):
        load_batch(batch, random_rows(SIZES, [0, 2], 3, seed=step))
        _native.update(batch, [table.update_by_rows(normal(3, table.width))], step)
        average = 0.9 * average + 0.1 * table.weights
    np.testing.assert_allclose(table.finish_average(29), average, rtol=1e-4, atol=1e-5)
