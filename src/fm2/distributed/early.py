"""The rows of the next batch that the current step does not update. They are sent while it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fm2.distributed.messages import Ints, Rooms, split_parts
from fm2.distributed.rows import Buffers, ByWorker, Demand, Lookup, Marks, RowPacker, Spaces, split_marked
from fm2.distributed.workers import Workers
from fm2.training.tables import Floats


@dataclass(frozen=True)
class Reply:
    """What a worker replies to another: the size of all early rows, a mark for every late row, the rows without one."""

    floats: Ints
    marks: Marks
    rows: Floats

    @staticmethod
    def size(features: int, room: int) -> int:
        """Return the length of the reply to a request for some features."""
        return 1 + -(-features // 4) + room

    @classmethod
    def within(cls, part: Floats, features: int) -> Reply:
        """Return the views of a part of a message."""
        begin = cls.size(features, 0)
        return cls(part[:1].view(np.int32), part[1:begin].view(np.uint8)[:features], part[begin:])


class EarlyRows:
    """Sends the rows together with marks of those that are late, in a message whose size the receiver knows.

    The message has room for a little more than the last one needed. If early rows do not fit, they become late ones.
    """

    def __init__(self, workers: Workers, packer: RowPacker) -> None:
        self._workers, self._packer = workers, packer
        self._rooms = Rooms(workers.count)

    def fetch(self, source: Buffers, lookup: Lookup, marks: Sequence[Marks]) -> None:
        """Exchange the rows without a mark; those with one stay missing. This worker serves the rows of ``marks``."""
        needs, serves = lookup.rows.needs, lookup.rows.serves
        served = [split_marked(*pair) for pair in zip(serves, marks, strict=True)]
        floats = [self._packer.floats(early) for early, _ in served]
        for other in self._workers.others:
            if floats[other] > self._rooms.sent[other]:
                self._mark_excess(serves[other], marks[other], self._rooms.sent[other])
                served[other] = split_marked(serves[other], marks[other])
        replies = self._exchange(source, [early for early, _ in served], marks, floats, needs)
        needed = [split_marked(spaces, reply.marks) for spaces, reply in zip(needs, replies, strict=True)]
        for (early, _), reply in zip(needed, replies, strict=True):
            self._packer.unpack(reply.rows, early, lookup.slot.weights())
        self._rooms.resize(floats, [int(reply.floats[0]) for reply in replies])
        lookup.missing = Demand([late for _, late in needed], [late for _, late in served])

    def _mark_excess(self, spaces: Spaces, marks: Marks, room: int) -> None:
        """Mark the rows that do not fit into a message."""
        marks[np.cumsum(self._packer.floats_per_row(spaces) * (marks == 0)) > room] = 1

    def _exchange(
        self, source: Buffers, early: ByWorker, marks: Sequence[Marks], floats: Sequence[int], needs: ByWorker
    ) -> list[Reply]:
        """Send replies to the others; return those of all workers, including this one."""
        own, packer, rooms = self._workers.index, self._packer, self._rooms
        asked = [len(of_worker) for of_worker in marks]
        wanted = [sum(len(rows.features) for rows in spaces) for spaces in needs]
        sends = [Reply.size(*pair) for pair in zip(asked, rooms.sent, strict=True)]
        expected = [Reply.size(*pair) for pair in zip(wanted, rooms.received, strict=True)]
        sends[own] = expected[own] = 0
        sent, received = packer.memory("early sent", sum(sends)), packer.memory("early received", sum(expected))
        parts = split_parts(sent, sends)
        parts[own] = packer.memory("early own", Reply.size(asked[own], floats[own]))
        for other, part in enumerate(parts):
            reply = Reply.within(part, asked[other])
            reply.floats[:], reply.marks[:] = floats[other], marks[other]
            packer.pack(source, early[other], reply.rows)
        self._workers.exchange(sent, sends, expected, True, received)
        got = split_parts(received, expected)
        got[own] = parts[own]
        return [Reply.within(part, count) for part, count in zip(got, wanted, strict=True)]
