"""The rows of a table that one batch needs, copied from the workers that store them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Dropout, Layout, Minibatch, Optimizer
from fm2.distributed.shards import TableShard
from fm2.training.tables import EmbeddingTable, Floats, aligned_zeros

RATE = 1.0  # of the optimizer that only collects gradients


class BatchTable(EmbeddingTable):
    """A table of a batch's distinct features. An update writes their gradients to ``gradients``, and changes nothing.

    It keeps its memory from one batch to the next.
    """

    def __init__(self, shard: TableShard) -> None:
        self._owners, self._groups = shard.owners, shard.groups
        self.dims = shard.dims
        self.width = int(self.dims.sum())
        self.optimizer, self.decay = Optimizer("collect", RATE), 0.0
        self.average, self.touched = None, None
        self._memory = aligned_zeros(0), aligned_zeros(0)

    def resize(self, sizes: NDArray[np.int32]) -> None:
        """Make room for as many features of each field."""
        floats = sizes.astype(np.int64) * self.dims
        own = floats[self._groups]
        offset_of = np.zeros(len(sizes), np.int64)
        offset_of[self._groups] = np.cumsum(own) - own
        total = int(own.sum())
        if len(self._memory[0]) < total:
            self._memory = aligned_zeros(total + total // 4), aligned_zeros(total + total // 4)
        self.sizes, self.offsets = sizes, offset_of[self._owners]
        self.layout = Layout(self.offsets, self.dims, sizes)
        self.weights, self.gradients = (memory[:total] for memory in self._memory)
        self.state = (self.gradients,)
        self.native = _native.Table(self.layout, self.weights, self.state)

    def averaged(self, step: int, threads: int = 0) -> EmbeddingTable:
        return self


class BatchSlot:
    """The memory of one batch: its rows of the dataset and of the tables. Two slots alternate, so that one can be
    filled while the other is in use. ``part`` has the positions of this worker's rows in the batch."""

    def __init__(self, field_sizes: Sequence[int], shards: dict[str, TableShard], dropout: Dropout | None) -> None:
        self.batch = Minibatch(np.array(field_sizes, np.int32), compacts=True)
        self.tables: dict[str, EmbeddingTable] = {}
        self.by_name = {name: BatchTable(shard) for name, shard in shards.items()}
        self.tables.update(self.by_name)
        self.dropout = dropout
        self.part = np.empty(0, np.uint32)

    def weights(self) -> dict[str, tuple[Layout, Floats]]:
        """Return the layouts and weights of the tables."""
        return {name: (table.layout, table.weights) for name, table in self.by_name.items()}

    def gradients(self) -> dict[str, tuple[Layout, Floats]]:
        """Return the layouts and gradients of the tables."""
        return {name: (table.layout, table.gradients) for name, table in self.by_name.items()}
