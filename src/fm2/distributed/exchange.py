"""How workers exchange the rows of a batch: the distinct features, their weights, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Layout, Minibatch
from fm2.distributed.batch_tables import BatchSlot
from fm2.distributed.shards import TableShard
from fm2.distributed.workers import Workers
from fm2.training.tables import Floats

Ints = NDArray[np.int32]
Marks = NDArray[np.uint8]
Buffers = Mapping[str, tuple[Layout, Floats]]  # the layout and a buffer of each table


@dataclass(frozen=True)
class Rows:
    """Rows of a table: ``counts[i]`` of ``fields[i]``, one field after the other."""

    fields: Ints
    counts: Ints
    features: Ints

    def floats(self, dims: Ints) -> int:
        """Return the number of weights."""
        return int(self.counts @ dims[self.fields])

    def split(self, marks: Marks) -> tuple[Rows, Rows]:
        """Return the rows with mark 0, and the others."""
        counts, features, marked_counts, marked_features = _native.split_rows(self.counts, self.features, marks)
        return Rows(self.fields, counts, features), Rows(self.fields, marked_counts, marked_features)

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Return the arrays as native code takes them."""
        return self.fields, self.counts, self.features


ByWorker = list[list[Rows]]  # for every worker and every space


@dataclass(frozen=True)
class Demand:
    """The rows that this worker ``needs``, by their numbers in the batch's tables, and those that it ``serves`` to
    others, by their numbers in its shards; both for every worker."""

    needs: ByWorker
    serves: ByWorker


@dataclass
class Lookup:
    """The features of a batch. ``late`` ones are being updated by the previous step, and therefore sent after it."""

    slot: BatchSlot
    rows: Demand
    early: Demand
    late: Demand | None = None


class Exchange:
    """Sends rows between the workers.

    A space is a set of tables whose fields share rows in the same way. There is one unless embeddings are shared, which
    weights per feature never are.
    """

    def __init__(self, workers: Workers, shards: dict[str, TableShard], threads: int) -> None:
        self._workers, self._shards, self._threads = workers, shards, threads
        spaces = sorted({tuple(shard.owners) for shard in shards.values()}, key=lambda owners: len(set(owners)))
        self._owners = [list(owners) for owners in spaces]
        self._fields = [np.array(sorted(set(owners)), np.int32) for owners in spaces]
        self._kept: dict[tuple[str, bool], Floats] = {}
        self._space_of = {name: spaces.index(tuple(shard.owners)) for name, shard in shards.items()}

    def request(self, slot: BatchSlot, updated: int | None = None, ahead: bool = False) -> Lookup:
        """Tell the other workers which rows the loaded batch of a slot needs.

        Rows that are being ``updated`` in this step will be sent late.
        """
        workers = self._workers
        needed, features = self._find(slot.batch)
        self._resize(slot, needed)
        counts = np.array([np.concatenate([rows.counts for rows in spaces]) for spaces in needed], np.int32)
        width = counts.shape[1]
        asked = workers.exchange(counts.ravel(), [width] * workers.count, [width] * workers.count, ahead)
        asked = asked.reshape(workers.count, width)
        found = workers.exchange(np.concatenate(features), counts.sum(1).tolist(), asked.sum(1).tolist(), ahead)
        demand = Demand(needed, self._split(asked, found))
        if updated is None:
            return Lookup(slot, demand, demand)
        return Lookup(slot, demand, *self._find_late(demand, updated, ahead))

    def _find(self, batch: Minibatch) -> tuple[ByWorker, list[Ints]]:
        """Compact a batch; return the rows that it needs from each worker, and their features for each worker."""
        count = self._workers.count
        flat, features, ids = _native.compact(batch, self._owners[0], count, self._threads)
        counts = flat.reshape(count, -1)
        ends = np.cumsum(counts.sum(1))[:-1]
        by_worker = list(zip(counts, np.split(features, ends), np.split(ids, ends), strict=True))
        needed = [[Rows(self._fields[0], own, numbers)] for own, _, numbers in by_worker]
        wanted = [[own] for _, own, _ in by_worker]
        for fields in self._fields[1:]:
            values = [np.unique(_native.value_ids(batch, number)) for number in fields]
            for worker, (own, own_features, numbers) in enumerate(by_worker):
                rows, their_features = self._per_field(values, own, own_features, numbers)
                needed[worker].append(Rows(fields, *rows))
                wanted[worker].append(their_features)
        return needed, [np.concatenate(parts) for parts in wanted]

    def _per_field(
        self, values: Sequence[Ints], counts: Ints, features: Ints, numbers: Ints
    ) -> tuple[tuple[Ints, Ints], Ints]:
        """Return which of the rows of each group every single field needs."""
        ends = np.cumsum(counts)[:-1]
        parts = zip(np.split(features, ends), np.split(numbers, ends), strict=True)
        by_group = dict(zip(self._fields[0].tolist(), parts, strict=True))
        chosen = []
        for number, occurring in enumerate(values):
            own_features, own = by_group[self._owners[0][number]]
            mask = np.isin(own, occurring, assume_unique=True)
            chosen.append((own_features[mask], own[mask]))
        sizes = np.array([len(own) for _, own in chosen], np.int32)
        return (sizes, np.concatenate([own for _, own in chosen])), np.concatenate([own for own, _ in chosen])

    def _resize(self, slot: BatchSlot, needed: ByWorker) -> None:
        totals = np.zeros(len(self._owners[0]), np.int32)
        for spaces in needed:
            totals[spaces[0].fields] += spaces[0].counts
        sizes = np.maximum(totals[self._owners[0]], 1).astype(np.int32)
        for table in slot.by_name.values():
            table.resize(sizes)

    def _split(self, counts: Ints, features: Ints) -> ByWorker:
        """Return the rows of every worker and space."""
        ends = np.cumsum([len(fields) for fields in self._fields])[:-1]
        served: ByWorker = []
        begin = 0
        for own in counts:
            spaces = []
            for fields, part in zip(self._fields, np.split(own, ends), strict=True):
                end = begin + int(part.sum())
                spaces.append(Rows(fields, np.ascontiguousarray(part), features[begin:end]))
                begin = end
            served.append(spaces)
        return served

    def _find_late(self, demand: Demand, updated: int, ahead: bool) -> tuple[Demand, Demand]:
        """Tell each worker which of its rows come late; return the early and the late ones."""
        marks = [
            [self._shard_of(space).native.find(*rows.arrays(), updated) for space, rows in enumerate(spaces)]
            for spaces in demand.serves
        ]
        sent = [np.concatenate(parts) for parts in marks]
        sizes = [[len(rows.features) for rows in spaces] for spaces in demand.needs]
        got = self._workers.exchange(
            np.concatenate(sent), [len(part) for part in sent], [sum(own) for own in sizes], ahead
        )
        parts = np.split(got, np.cumsum([size for own in sizes for size in own])[:-1])
        spaces = len(self._fields)
        received = [parts[worker * spaces : (worker + 1) * spaces] for worker in range(len(sizes))]
        needs, serves = _split(demand.needs, received), _split(demand.serves, marks)
        return Demand(needs[0], serves[0]), Demand(needs[1], serves[1])

    def _shard_of(self, space: int) -> TableShard:
        return next(self._shards[name] for name, own in self._space_of.items() if own == space)

    def mark(self, lookup: Lookup, step: int) -> None:
        """Note which rows a step updates."""
        for space in range(len(self._fields)):
            for spaces in lookup.rows.serves:
                self._shard_of(space).native.mark(*spaces[space].arrays(), step)

    def fetch(self, source: Buffers, slot: BatchSlot, demand: Demand, ahead: bool = False) -> None:
        """Send rows of the ``source`` to the workers that need them, and write those needed here into a slot."""
        received, begins = self._transfer(source, demand.serves, demand.needs, ahead)
        for begin, spaces in zip(begins, demand.needs, strict=True):
            for name, (layout, weights) in slot.weights().items():
                rows = spaces[self._space_of[name]]
                end = begin + rows.floats(self._shards[name].dims)
                _native.write_rows(layout, weights, *rows.arrays(), received[begin:end])
                begin = end

    def _transfer(
        self, source: Buffers, sent: ByWorker, received: ByWorker, ahead: bool = False
    ) -> tuple[Floats, list[int]]:
        """Send packed rows of every table to every worker; return what they sent, and where the part of each begins.

        The rows that a worker needs from itself are packed there directly. The result is valid until the next call.
        """
        own = self._workers.index
        sends, expected = (
            [
                sum(spaces[space].floats(self._shards[name].dims) for name, space in self._space_of.items())
                for spaces in rows
            ]
            for rows in (sent, received)
        )
        own_floats, sends[own], expected[own] = sends[own], 0, 0
        others = sum(expected)
        packed = self._memory("sent", ahead, sum(sends))
        out = self._memory("received", ahead, others + own_floats)
        begin = 0
        for worker, spaces in enumerate(sent):
            into, at = (out, others) if worker == own else (packed, begin)
            for name, (layout, buffer) in source.items():
                rows = spaces[self._space_of[name]]
                end = at + rows.floats(self._shards[name].dims)
                _native.read_rows(layout, buffer, *rows.arrays(), into[at:end])
                at = end
            begin += sends[worker]
        self._workers.exchange(packed, sends, expected, ahead, out[:others])
        begins = np.cumsum([0, *expected[:-1]]).tolist()
        begins[own] = others
        return out, begins

    def _memory(self, name: str, ahead: bool, floats: int) -> Floats:
        """Return memory that is kept between steps: new memory would have to be cleared every time."""
        kept = self._kept.get((name, ahead))
        if kept is None or len(kept) < floats:
            kept = self._kept[name, ahead] = np.empty(floats + floats // 4, np.float32)
        return kept[:floats]

    def update(self, lookup: Lookup, step: int) -> None:
        """Send the gradients of a batch to the workers that store the rows, and update this worker's rows."""
        gradients, starts = self._transfer(lookup.slot.gradients(), lookup.rows.needs, lookup.rows.serves)
        begins: dict[str, list[NDArray[np.int64]]] = {name: [] for name in self._shards}
        for begin, spaces in zip(starts, lookup.rows.serves, strict=True):
            for name, shard in self._shards.items():
                rows = spaces[self._space_of[name]]
                floats = rows.counts.astype(np.int64) * shard.dims[rows.fields]
                begins[name].append(begin + np.cumsum(floats) - floats)
                begin += int(floats.sum())
        for name, shard in self._shards.items():
            parts = [spaces[self._space_of[name]].arrays() for spaces in lookup.rows.serves]
            fields, counts, features = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            runs = fields, counts, features, gradients, np.concatenate(begins[name])
            shard.native.update(shard.optimizer, *runs, step, self._threads)


def _split(rows: ByWorker, marks: Sequence[Sequence[Marks]]) -> tuple[ByWorker, ByWorker]:
    """Return the rows with mark 0, and the others."""
    pairs = [[own.split(mark) for own, mark in zip(*both, strict=True)] for both in zip(rows, marks, strict=True)]
    return [[pair[0] for pair in spaces] for spaces in pairs], [[pair[1] for pair in spaces] for spaces in pairs]
