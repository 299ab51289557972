"""Errors of tables and batches: invalid ids, arrays and shapes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.tables import SIZES, draw_ids, loaded, make_table, normal

from fm2 import _native
from fm2.training.tables import Dropout, EmbeddingTable, Optimizer, adagrad, fm_logits, linear_logits, minibatch, update


def test_unknown_ids_and_rows_raise_errors() -> None:
    batch = minibatch(SIZES)
    for field, id in [(0, 5), (1, 1), (2, -1), (3, 2**31 - 1), (3, -(2**31))]:
        ids = draw_ids(100)
        ids[77, field] = id
        with pytest.raises(IndexError, match=f"row 77 has the id {id} in field {field}, whose ids go from 0 to"):
            batch.load(ids)
        assert len(batch) == 0
    for row in (100, -1, 2**40):
        with pytest.raises(IndexError, match=f"no row {row} among 100"):
            batch.load(draw_ids(100), np.array([3, row]))


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
    with pytest.raises(ValueError, match="column for every field"):
        batch.load(draw_ids(3)[:, :3].copy())
    for wrong in (
        linear.update_by_logits(normal(9)),
        table.update_by_logits(normal(10)),
        table.update_by_sums(normal(10), normal(10, 3)),
    ):
        with pytest.raises(ValueError, match="update: "):
            update(batch, [wrong], 1)
    with pytest.raises(ValueError, match="step"):
        update(batch, [table.update_by_rows(good)], 0)
    with pytest.raises(ValueError, match="other sizes"):
        table.gather(loaded(draw_ids(10, [9, 9, 9, 9]), [9, 9, 9, 9]))
    with pytest.raises(ValueError, match="same dimension"):
        fm_logits(None, table, batch)
    equal = make_table([3] * 4, adagrad())
    with pytest.raises(ValueError, match="a sign for each"):
        fm_logits(None, equal, batch, signs=normal(2))
    with pytest.raises(ValueError, match="signs go with sums"):
        update(batch, [equal.update_by_sums(normal(10), normal(10, 3), normal(4))], 1)
    with pytest.raises(ValueError, match="dimension is 1"):
        linear_logits(table, batch)
    with pytest.raises(ValueError, match="no average"):
        table.finish_average(1)


def test_impossible_tables_raise_errors() -> None:
    for sizes, dims in [([], []), ([0], [1]), ([3], [0]), ([3], [2000])]:
        with pytest.raises(ValueError, match="layout"):
            EmbeddingTable(sizes, dims, adagrad())
    three, floats = np.array([3], dtype=np.int32), np.zeros(6, dtype=np.float32)
    with pytest.raises(ValueError, match="ends"):
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
    with pytest.raises(ValueError, match="arrays"):
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
