"""Rows of the tables that a batch needs, and how they are packed into messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Layout
from fm2.distributed.batch_tables import BatchSlot
from fm2.distributed.messages import Ints
from fm2.distributed.shards import TableShard
from fm2.training.tables import Floats

Marks = NDArray[np.uint8]
Buffers = Mapping[str, tuple[Layout, Floats]]  # the layout and a buffer of each table


@dataclass(frozen=True)
class Rows:
    """Rows of a table: ``counts[i]`` of ``fields[i]``, one field after the other."""

    fields: Ints
    counts: Ints
    features: Ints

    def floats(self, dims: NDArray[np.integer]) -> int:
        """Return the number of weights."""
        return int(self.counts @ dims[self.fields])

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Return the arrays as native code takes them."""
        return self.fields, self.counts, self.features


Spaces = list[Rows]  # a space is a set of tables whose fields share rows in the same way
ByWorker = list[Spaces]


def split_marked(spaces: Spaces, marks: Marks) -> tuple[Spaces, Spaces]:
    """Return the rows with mark 0, and the others."""
    unmarked, marked = [], []
    begin = 0
    for rows in spaces:
        end = begin + len(rows.features)
        counts, features, *others = _native.split_rows(rows.counts, rows.features, marks[begin:end])
        unmarked.append(Rows(rows.fields, counts, features))
        marked.append(Rows(rows.fields, *others))
        begin = end
    return unmarked, marked


@dataclass(frozen=True)
class Demand:
    """The rows that this worker ``needs``, by their numbers in the batch's tables, and those that it ``serves`` to
    others, by their numbers in its shards; both for every worker."""

    needs: ByWorker
    serves: ByWorker


@dataclass
class Lookup:
    """The rows of a batch, of which some are still ``missing`` in the slot."""

    slot: BatchSlot
    rows: Demand
    missing: Demand


class RowPacker:
    """Packs the rows of all tables, one table after the other. ``space_of`` has the space of each table."""

    def __init__(self, shards: Mapping[str, TableShard], space_of: Mapping[str, int]) -> None:
        self._dims = {name: shard.dims for name, shard in shards.items()}
        self._space_of = space_of
        self._kept: dict[str, Floats] = {}

    def floats(self, spaces: Spaces) -> int:
        """Return the number of weights in all tables."""
        return sum(spaces[space].floats(self._dims[name]) for name, space in self._space_of.items())

    def floats_per_row(self, spaces: Spaces) -> NDArray[np.int64]:
        """Return the number of weights of every row, space by space."""
        fields = len(next(iter(self._dims.values())))
        widths = [np.zeros(fields, np.int64) for _ in spaces]
        for name, space in self._space_of.items():
            widths[space] += self._dims[name]
        return np.concatenate(
            [np.repeat(width[rows.fields], rows.counts) for width, rows in zip(widths, spaces, strict=True)]
        )

    def pack(self, source: Buffers, spaces: Spaces, into: Floats) -> None:
        """Copy rows of the source into a message."""
        for place, part in self._parts(source, spaces):
            _native.read_rows(*place, into[part])

    def unpack(self, packed: Floats, spaces: Spaces, target: Buffers) -> None:
        """Copy rows of a message into the target."""
        for place, part in self._parts(target, spaces):
            _native.write_rows(*place, packed[part])

    def _parts(
        self, buffers: Buffers, spaces: Spaces
    ) -> Iterator[tuple[tuple[Layout, Floats, Ints, Ints, Ints], slice]]:
        """Yield the layout, the buffer and the rows of each table, and where a message has them."""
        begin = 0
        for name, (layout, buffer) in buffers.items():
            rows = spaces[self._space_of[name]]
            end = begin + rows.floats(self._dims[name])
            yield (layout, buffer, *rows.arrays()), slice(begin, end)
            begin = end

    def memory(self, name: str, floats: int) -> Floats:
        """Return memory that is kept between steps: new memory would have to be cleared every time."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < floats:
            kept = self._kept[name] = np.empty(floats + floats // 4, np.float32)
        return kept[:floats]
