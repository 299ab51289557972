"""Which rows are for training, which for validation and which for the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error

SPLITS = ("train", "validation", "test")

Rows = NDArray[np.int64]
Assignment = NDArray[np.uint8]


def check_fractions(
    fractions: Sequence[float], given: Sequence[bool] = (False, False, False), may_lack_training: bool = False
) -> tuple[float, ...]:
    """Check the shares of the splits; those that have files of their own get none of the rest.

    There have to be some for training, unless ``may_lack_training``.

    >>> check_fractions((0.8, 0.1, 0.1), given=(False, False, True))
    (0.888..., 0.111..., 0.0)
    """
    if len(fractions) != 3 or not (all(share >= 0 for share in fractions) and abs(sum(fractions) - 1) <= 1e-6):
        raise Fm2Error(f"prepare: the fractions {tuple(fractions)} are not three shares that add up to 1")
    left = [0.0 if has_files else share for share, has_files in zip(fractions, given, strict=True)]
    if left[0] <= 0 and not (may_lack_training and sum(left) > 0):
        raise Fm2Error("prepare: the fractions leave no rows for training")
    return tuple(share / sum(left) for share in left)


def random_split(rows: Rows, fractions: Sequence[float], seed: int) -> Assignment:
    """Assign rows by a hash of seed and row number, so that a row's split depends on nothing else.

    >>> random_split(np.arange(6), (0.5, 0.25, 0.25), seed=1)
    array([0, 1, 1, 1, 2, 0], dtype=uint8)
    """
    mixed = _mix(_mix(np.array([seed], dtype=np.int64).astype(np.uint64)) + rows.astype(np.uint64))
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.searchsorted(np.cumsum(fractions)[:2], share, side="right").astype(np.uint8)


def ordered_split(blocks: Callable[[], Iterable[Rows]], fractions: Sequence[float]) -> Callable[[Rows], Assignment]:
    """Assign the earliest values to training and the latest to the test.

    Rows of the same time stay together, in the earlier split. ``blocks`` gives the values of all rows, block by block,
    as often as asked; they are counted, never kept.

    >>> assign = ordered_split(lambda: [np.array([30, 10, 20, 20, 40])], (0.6, 0.2, 0.2))
    >>> assign(np.array([10, 20, 30, 40]))
    array([0, 0, 1, 2], dtype=uint8)
    >>> ordered_split(lambda: [np.array([30, 10, 20])], (0, 0.4, 0.6))(np.array([10, 20, 30]))
    array([1, 2, 2], dtype=uint8)
    """
    total = sum(len(block) for block in blocks())
    ends = [min(total, max(1, round(total * share)) if share else 0) for share in np.cumsum(fractions)[:2]]
    last = np.array([_value_at(blocks, end - 1) if end else np.iinfo(np.int64).min for end in ends])
    return lambda values: np.searchsorted(last, values, side="left").astype(np.uint8)


def _value_at(blocks: Callable[[], Iterable[Rows]], rank: int) -> int:
    """Find the value of that rank by narrowing down to ever finer ranges; the rows are counted a few times."""
    low = min(int(block.min()) for block in blocks() if len(block))
    high = max(int(block.max()) for block in blocks() if len(block))
    while low < high:
        edges = np.unique(np.linspace(low, high + 1, 4097).astype(np.int64))
        counts = np.zeros(len(edges) - 1, dtype=np.int64)
        for block in blocks():
            inside = block[(block >= low) & (block <= high)]
            counts += np.bincount(np.searchsorted(edges, inside, side="right") - 1, minlength=len(counts))
        place = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
        rank -= int(counts[:place].sum())
        low, high = int(edges[place]), int(edges[place + 1]) - 1
    return low


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits well: the finalizer of the splitmix64 generator."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
