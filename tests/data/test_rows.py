"""Encoded rows: selecting, compacting and concatenating rows keeps the values of every row."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.lists import random_rows, values_of

from fm2.data.rows import EncodedRows, Lists
from fm2.errors import Fm2Error


@pytest.mark.parametrize("weighted", [False, True])
def test_compact_rows_have_the_same_values(weighted: bool) -> None:
    rows = random_rows([5, 7, 9], {1, 2}, rows=50, weighted=weighted)
    order = np.random.default_rng(0).permutation(50)[:20]
    chosen = rows[order]
    compact = chosen.compact()
    for field in range(3):
        assert values_of(compact, field) == values_of(chosen, field)
    assert compact.ids[:, 1].tolist() == list(range(20))
    assert len(compact.lists[1]) == 20


def test_concatenated_rows_have_the_values_of_all_parts() -> None:
    parts = [random_rows([5, 7, 9], {1}, rows=count, seed=count) for count in (4, 0, 3)]
    both = EncodedRows.concatenate(parts)
    for field in range(3):
        assert values_of(both, field) == [values for part in parts for values in values_of(part, field)]


def test_weights_and_no_weights_can_be_concatenated() -> None:
    first = EncodedRows(np.array([[0]], np.int32), {0: Lists.of([[1, 2]])})
    second = EncodedRows(np.array([[0]], np.int32), {0: Lists.of([[3]], [[0.5]])})
    assert EncodedRows.concatenate([first, second]).lists[0].value_weights().tolist() == [1, 1, 0.5]
    assert EncodedRows.concatenate([second, first]).lists[0].value_weights().tolist() == [0.5, 1, 1]


def test_ids_are_converted_only_if_they_keep_their_values() -> None:
    assert EncodedRows.of(np.array([[1, 2**31 - 1]])).ids.dtype == np.int32
    for ids in (np.array([[2**31]]), np.array([[2**32 + 1]]), np.array([[1.5]])):
        with pytest.raises(Fm2Error, match="ids must be integers that fit into 32 bits"):
            EncodedRows.of(ids)


def test_rows_without_lists_are_concatenated_as_arrays() -> None:
    parts = [EncodedRows.of(np.full((2, 3), value, np.int32)) for value in (1, 2)]
    assert EncodedRows.concatenate(parts).ids.tolist() == [[1] * 3] * 2 + [[2] * 3] * 2
    assert EncodedRows.concatenate(parts).native_lists() == []
