"""Each worker computes the rows of a batch that are in its own share of the dataset."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fm2.data.rows import EncodedRows
from fm2.distributed.backend import DistributedBackend
from fm2.training.shuffling import shuffled


@pytest.mark.parametrize(("rows", "count"), [(1000, 1), (1000, 2), (1001, 3), (2, 3)])
def test_a_worker_reads_one_range_of_rows_and_workers_read_all_rows(rows, count):
    table = EncodedRows(np.zeros((rows, 1), np.int32))
    read: list[list[int]] = [[] for _ in range(count)]
    for order in shuffled(rows, [0], 64):
        computed = []
        for index in range(count):
            backend = object.__new__(DistributedBackend)
            backend.workers = SimpleNamespace(index=index, count=count)
            positions = backend._positions(table, order)
            read[index] += order[positions].tolist()
            computed += positions.tolist()
        assert sorted(computed) == list(range(len(order)))
    assert [row for own in read for row in sorted(own)] == list(range(rows))
