"""The shard of an embedding table that one worker stores: of every field, the features with id % workers == worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fm2 import _native
from fm2._native import Optimizer
from fm2.artifacts.arrays import Arrays
from fm2.artifacts.settings import Settings
from fm2.models.embedding import FlatEmbedding, make_weight
from fm2.training.construction import l2_scale
from fm2.training.optimizers import initial_state, make_optimizer, table_settings
from fm2.training.tables import EmbeddingTable, table_state
from fm2.training.unknown import MEAN_ROWS

ByField = Sequence[NDArray[Any]]


class TableShard:
    """A worker's rows of a table, with their optimizer state and averages.

    ``owners`` has for each field the first field with the same rows, ``groups`` are these first fields, and ``rows``
    the numbers of rows of each group in the whole table. ``counts`` and ``squares`` are those of the worker's features,
    field by field, in a log of ``log_rows`` training rows. Feature ``id`` is row ``id // workers`` of worker ``id %
    workers``.
    """

    def __init__(
        self,
        table: FlatEmbedding,
        settings: Settings,
        counts: ByField,
        squares: ByField,
        log_rows: int,
        worker: int,
        workers: int,
    ) -> None:
        settings = table_settings(settings, table)
        self.worker, self.workers = worker, workers
        self.weight: nn.Parameter | None = None
        first: dict[int, int] = {}
        self.owners = [first.setdefault(owner, field) for field, owner in enumerate(table.owners)]
        self.groups = sorted(first.values())
        self.rows = [table.field_sizes[group] for group in self.groups]
        self.dims = np.array(table.dims, np.int32)
        self.begins = [table.offsets[group] for group in self.groups]  # in the whole table
        self.sizes = np.array([max(self.count(size), 1) for size in table.field_sizes], np.int32)
        floats = [int(self.sizes[group]) * int(self.dims[group]) for group in self.groups]
        offset_of = dict(zip(self.groups, np.cumsum([0, *floats[:-1]]).tolist(), strict=True))
        self.offsets = [offset_of[owner] for owner in self.owners]
        self.counts = [self._per_group(counts, group) for group in self.groups]
        evidence = [self._per_group(squares, group) for group in self.groups]
        scales = [l2_scale(settings, own, sums, log_rows) for own, sums in zip(self.counts, evidence, strict=True)]
        self.optimizer: Optimizer = make_optimizer(settings)
        self.table = EmbeddingTable(
            self.sizes.tolist(),
            self.dims.tolist(),
            self.optimizer,
            decay=settings.ema_decay,
            l2_scale=np.concatenate(scales),
            offsets=self.offsets,
        )
        self._scales = scales if settings.optimizer == "ftrl" else []
        self._settings = settings
        self.native = _native.Shard(self.table.native)

    def count(self, rows: int) -> int:
        """Return how many of a number of rows this worker has."""
        return len(range(self.worker, rows, self.workers))

    def _per_group(self, values: ByField, group: int) -> NDArray[Any]:
        """Return a number per feature of this worker; fields that share their rows have the sum."""
        parts = [values[field] for field, owner in enumerate(self.owners) if owner == group]
        total = np.sum(parts, axis=0, dtype=parts[0].dtype) if len(parts) > 1 else parts[0]
        return total if len(total) else np.zeros(1, total.dtype)

    def views(self, buffer: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the rows of each group in one of the table's buffers, [rows, dimension]."""
        shapes = [(int(self.sizes[group]), int(self.dims[group])) for group in self.groups]
        starts = [self.offsets[group] for group in self.groups]
        return [
            buffer[start : start + size * dim].reshape(size, dim)
            for start, (size, dim) in zip(starts, shapes, strict=True)
        ]

    def receive(self, begin: int, values: Tensor) -> None:
        """Keep this worker's part of initial weights that begin at an element of the whole table."""
        array = values.numpy()
        own = self.views(self.table.weights)
        for index, (start, rows) in enumerate(zip(self.begins, self.rows, strict=True)):
            dim = own[index].shape[1]
            low, high = max(begin - start, 0), min(begin + len(array) - start, rows * dim)
            if low >= high:
                continue
            part = array[low + start - begin : high + start - begin]
            first, last = -(-low // dim), high // dim  # the complete rows
            if first > last:  # a part of a single row
                self._put(own[index], last, low - last * dim, part)
                continue
            head, tail = first * dim - low, last * dim - low
            self._put(own[index], first - 1, dim - head, part[:head])
            self._put(own[index], last, 0, part[tail:])
            skip = (self.worker - first) % self.workers
            chosen = part[head:tail].reshape(-1, dim)[skip :: self.workers]
            to = (first + skip) // self.workers
            own[index][to : to + len(chosen)] = chosen

    def _put(self, own: NDArray[Any], row: int, column: int, values: NDArray[Any]) -> None:
        """Write a part of one row, if it belongs to this worker."""
        if len(values) and row % self.workers == self.worker:
            own[row // self.workers, column : column + len(values)] = values

    def start_state(self) -> None:
        """Set the optimizer's state to its initial values."""
        if not self._scales:
            first = initial_state(self._settings, self.table.weights)
            if np.any(first):  # untouched zeros take no memory
                self.table.state[0][:] = first
            return
        pairs = zip(self.views(self.table.weights), self.views(self.table.state[0]), self._scales, strict=True)
        for weights, state, scale in pairs:
            state[:] = initial_state(self._settings, weights, scale[:, None])

    def state(self) -> Arrays:
        """Return the arrays that a checkpoint has to keep."""
        return table_state(self.table)

    def weighted_sums(self, weights: NDArray[np.float32]) -> list[NDArray[np.float64]]:
        """Return, for each group, the sum of the known features' rows times their counts, then the counts' sum."""
        sums = []
        for rows, counts in zip(self.views(weights), self.counts, strict=True):
            known = counts.astype(np.float32)
            if self.worker == 0:
                known[0] = 0  # the unknown feature
            total = np.einsum("i,ij->j", known, rows, dtype=np.float64)
            sums.append(np.append(total, known.sum(dtype=np.float64)))
        return sums

    def shrink_unknown(self, weights: NDArray[np.float32], sums: Sequence[NDArray[np.float64]]) -> None:
        """Move the rows of unknown features toward the mean; ``sums`` are those of all workers."""
        if self.worker != 0:
            return
        for rows, counts, total in zip(self.views(weights), self.counts, sums, strict=True):
            if total[-1]:
                occurrences = np.float32(counts[0])
                share = occurrences / (occurrences + np.float32(MEAN_ROWS))
                rows[0] = share * rows[0] + (1 - share) * (total[:-1] / total[-1])


@contextmanager
def sharded_tables(
    settings: Settings, counts: ByField, squares: ByField, log_rows: int, worker: int, workers: int
) -> Iterator[list[TableShard]]:
    """Store only this worker's shard of the tables that are created within a context; yield the shards.

    The tables themselves have weights on the device "meta", which have a shape but no memory.
    """
    shards: list[TableShard] = []

    def make(table: FlatEmbedding, floats: int) -> nn.Parameter:
        shard = TableShard(table, settings, counts, squares, log_rows, worker, workers)
        shards.append(shard)
        weight = nn.Parameter(torch.empty(floats, device="meta"))
        weight.receive = shard.receive  # type: ignore[attr-defined]
        shard.weight = weight
        return weight

    token = make_weight.set(make)
    try:
        yield shards
    finally:
        make_weight.reset(token)
    for shard in shards:
        shard.start_state()
