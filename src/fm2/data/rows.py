"""Encoded rows: an id per field, and lists of weighted ids for multi-valued fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error

ListArrays = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32] | None]


@dataclass(frozen=True)
class Lists:
    """The lists of a multi-valued field. List b has the values ``offsets[b]`` to ``offsets[b + 1]``.

    Pooling is part of the weights: the field contributes the weighted sum of its features. ``weights`` of None are 1.

    >>> lists = Lists.of([[1, 2], [], [3]], [[0.5, 0.5], [], [1.0]])
    >>> len(lists), lists.take([2, 0]).ids.tolist()
    (3, [3, 1, 2])
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], weights: Sequence[Sequence[float]] | None = None) -> Lists:
        """Create lists from sequences of ids and weights."""
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        flat = np.array([id for values in ids for id in values], np.int32)
        if weights is None:
            return cls(offsets, flat)
        return cls(offsets, flat, np.array([weight for values in weights for weight in values], np.float32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of values of each list."""
        return np.diff(self.offsets)

    def take(self, numbers: NDArray[Any] | Sequence[int]) -> Lists:
        """Return copies of the lists with these numbers, in this order."""
        chosen = np.asarray(numbers, np.int64)
        begins = self.offsets[chosen]
        ends = self.offsets[chosen + 1]
        sizes = ends - begins
        lowest = min(chosen.min(initial=0), begins.min(initial=0), sizes.min(initial=0))
        if lowest < 0 or ends.max(initial=0) > len(self.ids):  # of a damaged file
            raise IndexError("the number or an offset of a list is out of range")
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        positions = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], sizes)
        weights = None if self.weights is None else np.asarray(self.weights[positions])
        return Lists(offsets, np.asarray(self.ids[positions]), weights)

    @classmethod
    def concatenate(cls, tables: Sequence[Lists]) -> Lists:
        """Return the lists of all tables, one table after the other.

        >>> Lists.concatenate([Lists.of([[1, 2]]), Lists.of([[], [3]])]).offsets.tolist()
        [0, 2, 2, 3]
        """
        return cls(
            np.concatenate([[0], np.cumsum(np.concatenate([table.sizes for table in tables]))]),
            np.concatenate([table.ids for table in tables]),
            None
            if all(table.weights is None for table in tables)
            else np.concatenate([table.value_weights() for table in tables]),
        )

    def value_weights(self) -> NDArray[np.float32]:
        """Return the weight of every value."""
        return np.ones(len(self.ids), np.float32) if self.weights is None else self.weights

    def arrays(self) -> ListArrays:
        """Return the arrays as native code takes them."""
        return self.offsets, self.ids, self.weights


def native_lists(lists: Mapping[int, Lists], fields: int) -> list[ListArrays | None]:
    """Return the lists of fields as native code takes them; nothing if no field is multi-valued."""
    if not lists:
        return []
    return [lists[index].arrays() if index in lists else None for index in range(fields)]


@dataclass(frozen=True)
class EncodedRows:
    """Rows of ids [rows, fields]. The id of a multi-valued field is the number of one of its ``lists``.

    A selection of rows has the same lists.

    >>> rows = EncodedRows(np.array([[3, 1], [4, 0]], np.int32), {1: Lists.of([[5, 6], [7]])})
    >>> rows[1:].compact().lists[1].ids.tolist()
    [5, 6]
    """

    ids: NDArray[np.int32]
    lists: Mapping[int, Lists] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: EncodedRows | NDArray[np.int32]) -> EncodedRows:
        """Return encoded rows themselves, or those of an array of ids."""
        if isinstance(rows, EncodedRows):
            return rows
        ids = np.asarray(rows)
        converted = ids.astype(np.int32, copy=False)
        if converted is not ids and not np.array_equal(converted, ids):
            raise Fm2Error("ids must be integers that fit into 32 bits")
        return cls(converted)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice | NDArray[Any]) -> EncodedRows:
        return EncodedRows(self.ids[rows], self.lists)

    def compact(self) -> EncodedRows:
        """Return the same rows in memory, with one list per row and field: list r belongs to row r."""
        ids = np.array(self.ids, np.int32)
        lists = {index: table.take(ids[:, index]) for index, table in self.lists.items()}
        for index in lists:
            ids[:, index] = np.arange(len(ids))
        return EncodedRows(ids, lists)

    def native_lists(self) -> list[ListArrays | None]:
        """Return the lists by field as native code takes them; nothing if no field is multi-valued."""
        return native_lists(self.lists, self.ids.shape[1])

    @classmethod
    def concatenate(cls, parts: Sequence[EncodedRows]) -> EncodedRows:
        """Return the rows of all parts, one part after the other."""
        if len(parts) == 1 or not parts[0].lists:
            return cls(np.concatenate([part.ids for part in parts]), parts[0].lists)
        compact = [part.compact() for part in parts]
        ids = np.concatenate([part.ids for part in compact])
        lists = {}
        for index in parts[0].lists:
            lists[index] = Lists.concatenate([part.lists[index] for part in compact])
            ids[:, index] = np.arange(len(ids))
        return cls(ids, lists)
