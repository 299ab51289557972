"""The trees of a tree field, as datasets and model files store them: native/include/fm2/trees.h describes the words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Words = NDArray[np.uint32]

COUNTS = 6
IN_LIST = 1 << 31  # added to the id of a ListValue
NODE = np.dtype([("input", np.uint32), ("threshold", np.float32), ("low", np.int32), ("high", np.int32)])


@dataclass(frozen=True)
class Pair:
    """Combinations of the ids of two parts, n × 2. Combination i is feature i + 1 of the pair; others are feature 0.

    In place of a part there may be an earlier pair: the number of parts plus its index. So a pair may combine the
    features of several parts.
    """

    parts: tuple[int, int]
    combinations: Ints


@dataclass(frozen=True)
class ListValue:
    """An input that is 1 if a row's list contains the feature with this id, and 0 otherwise: always if the id is 0."""

    id: int


Input = tuple[int, Floats | ListValue]


@dataclass(frozen=True)
class Trees:
    """Gradient-boosted trees on numbers of other fields' features, and the boundaries that divide their sum.

    ``inputs`` are the numbers that trees compare with thresholds: the part that has the features, or the number of
    parts plus the pair, and the number of each feature by id; none if it is the number in the part's column, or the
    length of its list. A value may be searched for in the list. A tree begins at a node of ``nodes``, its root, or at
    the leaf ~root.
    """

    pairs: tuple[Pair, ...]
    inputs: tuple[Input, ...]
    roots: Ints
    nodes: NDArray[Any]
    leaves: Floats
    boundaries: Floats

    def words(self) -> Words:
        """Return the trees as one array."""
        parts = [self.inputs, self.pairs, self.roots, self.nodes, self.leaves, self.boundaries]
        described = [number for part, numbers in self.inputs for number in (part, _features(numbers))]
        described += [number for pair in self.pairs for number in (*pair.parts, len(pair.combinations))]
        arrays: list[NDArray[Any]] = [pair.combinations.reshape(-1) for pair in self.pairs]
        arrays += [numbers for _, numbers in self.inputs if not isinstance(numbers, ListValue)]
        arrays += [self.roots, self.nodes, self.leaves, self.boundaries]
        heading = np.array([*map(len, parts), *described], np.uint32)
        return np.concatenate([heading, *(np.ascontiguousarray(array).view(np.uint32) for array in arrays)])

    @classmethod
    def of(cls, words: Words) -> Trees:
        """Read the array that :meth:`words` returns; raise ValueError if it is damaged."""
        reader = _Reader(words)
        inputs, pairs, *sizes = reader.take(COUNTS, np.uint32).tolist()
        of_inputs, of_pairs = (
            reader.take(n * width, np.uint32).reshape(n, width) for n, width in ((inputs, 2), (pairs, 3))
        )
        combinations = [reader.take(2 * size, np.int32).reshape(size, 2) for size in of_pairs[:, 2].tolist()]
        trees = cls(
            tuple(Pair((a, b), ids) for (a, b, _), ids in zip(of_pairs.tolist(), combinations, strict=True)),
            tuple(
                (part, ListValue(size - IN_LIST) if size >= IN_LIST else reader.take(size, np.float32))
                for part, size in of_inputs.tolist()
            ),
            *(reader.take(n, type) for n, type in zip(sizes, (np.int32, NODE, np.float32, np.float32), strict=True)),
        )
        reader.finish()
        return trees

    def for_features(self, ids: Sequence[Ints]) -> Trees:
        """Return the same trees for parts with other ids: ``ids[part]`` has the old id of each new one, or -1.

        New features have the numbers of the unknown one. Old features that have no new id have none.
        """
        pairs = []
        for pair in self.pairs:
            columns = zip(pair.parts, pair.combinations.T, strict=True)
            combinations = np.stack(
                [_new_ids(column, ids[part]) if part < len(ids) else column for part, column in columns], 1
            )
            pairs.append(Pair(pair.parts, combinations))  # a combination with an id of 0 is never found
        inputs = list[Input]()
        for part, numbers in self.inputs:
            if isinstance(numbers, ListValue):
                inputs.append((part, ListValue(int(_new_ids(np.array([numbers.id]), ids[part])[0]))))
            else:
                is_table = part < len(ids) and len(numbers)
                inputs.append((part, numbers[np.maximum(ids[part], 0)] if is_table else numbers))
        return dataclasses.replace(self, pairs=tuple(pairs), inputs=tuple(inputs))


def _features(numbers: Floats | ListValue) -> int:
    return IN_LIST + numbers.id if isinstance(numbers, ListValue) else len(numbers)


class _Reader:
    def __init__(self, words: Words) -> None:
        self._left = words

    def take(self, count: int, type: Any) -> NDArray[Any]:
        """Take values of a type from the front of the words."""
        size = count * np.dtype(type).itemsize // self._left.itemsize
        if size > len(self._left):
            raise ValueError("the trees of a field are truncated")
        taken, self._left = self._left[:size], self._left[size:]
        return taken.view(type)

    def finish(self) -> None:
        """Raise ValueError if words are left."""
        if len(self._left):
            raise ValueError("the trees of a field are too long")


def _new_ids(old: NDArray[Any], ids: Ints) -> Ints:
    """Return the new id of each ``old`` one, or 0; ``ids`` has the old id of each new one."""
    all_new = np.zeros(1 + max(int(ids.max(initial=0)), int(old.max(initial=0))), np.int32)
    all_new[ids[ids > 0]] = np.flatnonzero(ids > 0)
    new: Ints = all_new[old]
    return new


def same_trees(first: Words, second: Words) -> bool:
    """Return whether two tree fields have the same trees, whatever the ids of the features that these read."""
    if not len(first) or not len(second):
        return len(first) == len(second)
    a, b = Trees.of(first), Trees.of(second)
    same_inputs = _read(a) == _read(b)
    same_pairs = [pair.parts for pair in a.pairs] == [pair.parts for pair in b.pairs]
    arrays = ("roots", "nodes", "leaves", "boundaries")
    return same_inputs and same_pairs and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays)


def _read(trees: Trees) -> list[tuple[int, bool]]:
    """Return the part of each input, and whether the input is a value that may be in its list."""
    return [(part, isinstance(numbers, ListValue)) for part, numbers in trees.inputs]
