"""Messages whose length their receiver does not know: they have room for a little more than the last ones needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fm2.distributed.workers import Workers

Ints = NDArray[np.int32]
Number = TypeVar("Number", bound=np.generic)


@dataclass
class Rooms:
    """The numbers that fit into the messages to and from each worker. Both sides of a message compute the same room."""

    workers: int
    sent: list[int] = field(init=False)
    received: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.sent, self.received = [0] * self.workers, [0] * self.workers

    def resize(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Make room for as many numbers as the last messages needed, and a few more: batches differ little."""
        self.sent, self.received = ([count + count // 32 + 64 for count in counts] for counts in (sent, received))


class Requests:
    """Sends each worker the features that this worker needs from it, with their counts by field, in one message.

    Features that do not fit follow in a second exchange, which all workers take part in if any of them needs it.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._rooms = Rooms(workers.count)

    def exchange(self, counts: Ints, features: Sequence[Ints], ahead: bool) -> tuple[Ints, list[Ints]]:
        """Return the counts, [workers, fields], and the features that the workers need from this one.

        Only requests that are sent ``ahead`` are like each other; others have no room for features.
        """
        workers, own = self._workers, self._workers.index
        rooms = self._rooms if ahead else Rooms(workers.count)
        lengths = [len(each) for each in features]
        exceeds = any(lengths[other] > rooms.sent[other] for other in workers.others)
        parts = [
            np.concatenate([[exceeds], counts[other], _fill(features[other], rooms.sent[other])], dtype=np.int32)
            if other != own
            else features[own][:0]
            for other in range(workers.count)
        ]
        header = 1 + counts.shape[1]
        expected = [header + room if other != own else 0 for other, room in enumerate(rooms.received)]
        received = workers.exchange(np.concatenate(parts), [len(part) for part in parts], expected, ahead)
        got = split_parts(received, expected)
        exceeds |= any(bool(got[other][0]) for other in workers.others)
        asked = np.stack([counts[own] if other == own else part[1:header] for other, part in enumerate(got)])
        needed = asked.sum(1).tolist()
        found = [
            features[own] if other == own else part[header : header + needed[other]] for other, part in enumerate(got)
        ]
        if exceeds:
            rest = [features[other][room if other != own else lengths[own] :] for other, room in enumerate(rooms.sent)]
            missing = [count - len(part) for count, part in zip(needed, found, strict=True)]
            late = workers.exchange(np.concatenate(rest), [len(part) for part in rest], missing, ahead)
            found = [np.concatenate(pair) for pair in zip(found, split_parts(late, missing), strict=True)]
        rooms.resize(lengths, needed)
        return asked, found


def _fill(values: Ints, room: int) -> Ints:
    """Return the first values, followed by zeros if there are fewer than the room."""
    filled = np.zeros(room, np.int32)
    filled[: len(values)] = values[:room]
    return filled


def split_parts(values: NDArray[Number], sizes: Sequence[int]) -> list[NDArray[Number]]:
    """Return the parts of a message, one after the other."""
    return np.split(values, np.cumsum(sizes)[:-1])
