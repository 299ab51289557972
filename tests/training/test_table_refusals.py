"""Errors of tables and batches: invalid ids, arrays and shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.helpers.tables import SIZES, draw_ids, loaded, make_table, normal

from fm2 import _native
from fm2._native import update
from fm2.data.rows import EncodedRows, Lists
from fm2.training.tables import Dropout, EmbeddingTable, Optimizer, adagrad, fm_logits, linear_logits, minibatch


def test_unknown_ids_and_rows_raise_errors() -> None:
    batch = minibatch(SIZES)
    for field, id in [(0, 5), (1, 1), (2, -1), (3, 2**31 - 1), (3, -(2**31))]:
        ids = draw_ids(100)
        ids[77, field] = id
        with pytest.raises(
            IndexError, match=f"row 77 of the batch: the id of field {field} must be between 0 and .*, got {id}"
        ):
            batch.load(ids)
        assert len(batch) == 0
    for row in (100, -1, 2**40):
        with pytest.raises(IndexError, match=f"row {row} does not exist; there are 100 rows"):
            batch.load(draw_ids(100), order=np.array([3, row]))


@pytest.mark.parametrize(
    ("number", "lists", "message"),
    [
        (2, Lists.of([[0], [1]]), "there is no list 2"),
        (-1, Lists.of([[0], [1]]), "there is no list -1"),
        (0, Lists.of([]), "there is no list 0"),
        (1, Lists(np.array([0, 1, 3]), np.zeros(2, np.int32)), "the offsets of list 1 are out of range"),
        (1, Lists(np.array([0, 1, 0]), np.zeros(2, np.int32)), "the offsets of list 1 are out of range"),
        (0, Lists(np.array([-1, 1]), np.zeros(2, np.int32)), "the offsets of list 0 are out of range"),
        (1, Lists.of([[0], [3, 40]]), "the id of field 2 must be between 0 and 39, got 40"),
        (1, Lists.of([[0], [-1, 3]]), "the id of field 2 must be between 0 and 39, got -1"),
        (1, Lists.of([[0], [1, 2]], [[1], [1, math.nan]]), "a weight is not a finite number"),
        (1, Lists.of([[0], [1, 2]], [[1], [math.inf, 1]]), "a weight is not a finite number"),
    ],
)
@pytest.mark.parametrize("rows", [80, 1000])
def test_invalid_lists_raise_errors(number: int, lists: Lists, message: str, rows: int) -> None:
    batch, ids = minibatch(SIZES), draw_ids(rows)
    ids[:, 2] = 0
    ids[77, 2] = number
    with pytest.raises(IndexError, match=f"row [0-9]+ of the batch: .*{message}"):
        batch.load(ids, EncodedRows(ids, {2: lists}).native_lists())
    assert len(batch) == 0
    batch.load(draw_ids(rows))
    assert len(batch) == rows


def test_mismatched_arrays_raise_errors() -> None:
    table, batch = make_table([3, 1, 8, 17], adagrad()), loaded(draw_ids(10))
    linear = make_table([1] * 4, adagrad())
    good = normal(10, 29)
    for out in (normal(9, 29), normal(10, 28)):
        with pytest.raises(ValueError, match="gather: out"):
            table.gather(batch, out)
        with pytest.raises(ValueError, match="update: rows"):
            update(batch, [table.update_by_rows(out)], 1)
    for out in (good.astype(np.float64), normal(29, 10).T, normal(290)):
        with pytest.raises(TypeError):
            table.gather(batch, out)
        with pytest.raises(TypeError):
            table.update_by_rows(out)
    read_only = good.copy()
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        table.gather(batch, read_only)
    with pytest.raises(TypeError):
        batch.load(draw_ids(3).astype(np.int64))
    with pytest.raises(ValueError, match="ids must have 4 columns, got 3"):
        batch.load(draw_ids(3)[:, :3].copy())
    with pytest.raises(ValueError, match="expected lists for 4 fields, got 3"):
        batch.load(draw_ids(3), [None] * 3)
    with pytest.raises(ValueError, match="the lists of field 1 have 2 ids, but 1 weights"):
        batch.load(draw_ids(3), [None, (np.array([0, 2]), np.zeros(2, np.int32), normal(1)), None, None])
    for wrong in (
        linear.update_by_logits(normal(9)),
        table.update_by_logits(normal(10)),
        table.update_by_sums(normal(10), normal(10, 3)),
    ):
        with pytest.raises(ValueError, match="update: "):
            update(batch, [wrong], 1)
    with pytest.raises(ValueError, match="step"):
        update(batch, [table.update_by_rows(good)], 0)
    with pytest.raises(ValueError, match="different field sizes"):
        table.gather(loaded(draw_ids(10, [9, 9, 9, 9]), [9, 9, 9, 9]))
    with pytest.raises(ValueError, match="same dimension"):
        fm_logits(None, table, batch)
    equal = make_table([3] * 4, adagrad())
    with pytest.raises(ValueError, match="signs must have 3 entries, got 2"):
        fm_logits(None, equal, batch, signs=normal(2))
    with pytest.raises(ValueError, match="signs must have 3 entries, got 4"):
        update(batch, [equal.update_by_sums(normal(10), normal(10, 3), normal(4))], 1)
    with pytest.raises(ValueError, match="dimension of the table must be 1"):
        linear_logits(table, batch)
    with pytest.raises(ValueError, match="no moving average"):
        table.finish_average(1)


def test_impossible_tables_raise_errors() -> None:
    for sizes, dims in [([], []), ([0], [1]), ([3], [0]), ([3], [2000])]:
        with pytest.raises(ValueError, match="layout"):
            EmbeddingTable(sizes, dims, adagrad())
    three, floats = np.array([3], dtype=np.int32), np.zeros(6, dtype=np.float32)
    with pytest.raises(ValueError, match="field 1 overlaps with another field"):
        _native.Layout(np.array([0, 2]), np.array([1, 1], dtype=np.int32), np.array([3, 3], dtype=np.int32))
    layout = _native.Layout(np.array([3]), np.array([1], dtype=np.int32), three)
    for arrays in (
        [floats[:5], []],
        [floats, [floats[:2]]],
        [floats, [floats] * 3],
        [floats, [], floats],
        [floats, [], None, floats],
        [floats, [], None, floats, np.zeros(2, dtype=np.int32)],
    ):
        with pytest.raises(ValueError, match="table"):
            _native.Table(layout, *arrays)
    with pytest.raises(TypeError):
        _native.Table(layout, floats, [floats.astype(np.float64)])
    with pytest.raises(ValueError, match="the optimizer needs 1 state arrays, but the table has 0"):
        forgetful = _native.Update(_native.Table(layout, floats, []), adagrad(), rows=floats[None, :1])
        update(loaded(np.zeros((1, 1), dtype=np.int32), [3]), [forgetful], 1)
    for rule, options in [("sgd", {}), ("adam", {"beta1": 1.0}), ("ftrl", {"l1": -1.0}), ("adagrad", {"l2": np.nan})]:
        with pytest.raises(ValueError, match="optimizer"):
            Optimizer(rule, 0.1, **options)
    with pytest.raises(ValueError, match="learning_rate"):
        adagrad(0.0)
    for probability in (-0.1, 1.0, np.nan):
        with pytest.raises(ValueError, match="probability"):
            Dropout(element=probability)
