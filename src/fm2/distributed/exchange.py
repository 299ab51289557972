"""How workers exchange the rows of a batch: the distinct features, their weights, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Minibatch
from fm2.distributed.batch_tables import BatchSlot
from fm2.distributed.early import EarlyRows
from fm2.distributed.messages import Ints, Requests, split_parts
from fm2.distributed.rows import Buffers, ByWorker, Demand, Lookup, Marks, RowPacker, Rows, Spaces
from fm2.distributed.shards import TableShard
from fm2.distributed.workers import Workers
from fm2.training.tables import Floats

NOTHING = np.empty(0, np.float32)


class Transfer(NamedTuple):
    """Packed rows that workers send to this one, and where those of each begin; complete when ``work`` is.

    ``extras`` are further numbers of each worker.
    """

    floats: Floats
    begins: list[int]
    extras: list[Floats]
    work: Any


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
        self._space_of = {name: spaces.index(tuple(shard.owners)) for name, shard in shards.items()}
        self._packer = RowPacker(shards, self._space_of)
        self._requests, self._early = Requests(workers), EarlyRows(workers, self._packer)

    def request(self, slot: BatchSlot, ahead: bool = False) -> Lookup:
        """Tell the other workers which rows the loaded batch of a slot needs."""
        needed, features = self._find(slot.batch)
        self._resize(slot, needed)
        counts = np.array([np.concatenate([rows.counts for rows in spaces]) for spaces in needed], np.int32)
        demand = Demand(needed, self._split(*self._requests.exchange(counts, features, ahead)))
        return Lookup(slot, demand, demand)

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

    def _split(self, counts: Ints, features: Sequence[Ints]) -> ByWorker:
        """Return the rows of every worker and space."""
        ends = np.cumsum([len(fields) for fields in self._fields])[:-1]
        served: ByWorker = []
        for own_counts, own in zip(counts, features, strict=True):
            by_space = np.split(own_counts, ends)
            parts = np.split(own, np.cumsum([part.sum() for part in by_space])[:-1])
            served.append([Rows(*rows) for rows in zip(self._fields, by_space, parts, strict=True)])
        return served

    def _shard_of(self, space: int) -> TableShard:
        return next(self._shards[name] for name, own in self._space_of.items() if own == space)

    def mark(self, lookup: Lookup, step: int) -> None:
        """Note which rows a step updates."""
        for space in range(len(self._fields)):
            for spaces in lookup.rows.serves:
                self._shard_of(space).native.mark(*spaces[space].arrays(), step)

    def fetch(self, source: Buffers, lookup: Lookup) -> None:
        """Send missing rows of the ``source`` to the workers that need them; write those of this one to its slot."""
        rows = self.wait(self._transfer(source, lookup.missing.serves, lookup.missing.needs))
        for begin, spaces in zip(rows.begins, lookup.missing.needs, strict=True):
            self._packer.unpack(rows.floats[begin:], spaces, lookup.slot.weights())

    def fetch_early(self, source: Buffers, lookup: Lookup, updated: int) -> None:
        """Exchange the rows of the next batch that this step does not update; the others stay missing."""
        self._early.fetch(source, lookup, [self._find_updated(spaces, updated) for spaces in lookup.rows.serves])

    def _find_updated(self, spaces: Spaces, step: int) -> Marks:
        """Mark the rows that a step updates."""
        marks = [self._shard_of(space).native.find(*rows.arrays(), step) for space, rows in enumerate(spaces)]
        return np.concatenate(marks)

    def _transfer(self, source: Buffers, sent: ByWorker, received: ByWorker, extra: Floats = NOTHING) -> Transfer:
        """Start to send packed rows of every table to every worker, and the same extra numbers to all of them.

        The rows that a worker needs from itself are packed directly. The result is valid until the next call.
        """
        own, packer = self._workers.index, self._packer
        sends, expected = ([packer.floats(spaces) for spaces in rows] for rows in (sent, received))
        sends, expected = ([count + len(extra) for count in counts] for counts in (sends, expected))
        own_floats, sends[own], expected[own] = sends[own], 0, 0
        others = sum(expected)
        packed, out = packer.memory("sent", sum(sends)), packer.memory("received", others + own_floats)
        for worker, part in enumerate(split_parts(packed, sends)):
            if worker != own:
                packer.pack(source, sent[worker], part)
                part[len(part) - len(extra) :] = extra
        work = self._workers.start_exchange(packed, sends, expected, False, out[:others])
        packer.pack(source, sent[own], out[others:])
        ends = np.cumsum(expected)
        begins = (ends - expected).tolist()
        begins[own] = others
        extras = [out[end - len(extra) : end] for end in ends.tolist()]
        extras[own] = extra
        return Transfer(out, begins, extras, work)

    def send_gradients(self, lookup: Lookup, dense: Floats = NOTHING) -> Transfer:
        """Start to send the gradients of a batch to the workers that store the rows, and dense ones to all."""
        return self._transfer(lookup.slot.gradients(), lookup.rows.needs, lookup.rows.serves, dense)

    def wait(self, transfer: Transfer) -> Transfer:
        """Wait until the floats and extras of all workers are complete."""
        self._workers.wait(transfer.work)
        return transfer._replace(work=None)

    def update(self, lookup: Lookup, gradients: Transfer, step: int) -> None:
        """Update this worker's rows by the gradients of all workers."""
        gradients = self.wait(gradients)
        begins: dict[str, list[NDArray[np.int64]]] = {name: [] for name in self._shards}
        for begin, spaces in zip(gradients.begins, lookup.rows.serves, strict=True):
            for name, shard in self._shards.items():
                rows = spaces[self._space_of[name]]
                floats = rows.counts.astype(np.int64) * shard.dims[rows.fields]
                begins[name].append(begin + np.cumsum(floats) - floats)
                begin += int(floats.sum())
        for name, shard in self._shards.items():
            parts = [spaces[self._space_of[name]].arrays() for spaces in lookup.rows.serves]
            fields, counts, features = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            runs = fields, counts, features, gradients.floats, np.concatenate(begins[name])
            shard.native.update(shard.optimizer, *runs, step, self._threads)
