"""Assign rows to the training, validation and test splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error

SPLITS = ("train", "validation", "test")

Values = NDArray[np.int64]
Assignment = NDArray[np.uint8]  # the index in SPLITS of each row

HISTOGRAM_BINS = 4096


def check_fractions(
    fractions: Sequence[float],
    has_source: Sequence[bool] = (False, False, False),
    training_required: bool = True,
) -> tuple[float, ...]:
    """Return the share of each split in the rows to be split; a split that has its own source gets none of them.

    >>> check_fractions((0.8, 0.1, 0.1), has_source=(False, False, True))
    (0.888..., 0.111..., 0.0)
    """
    if len(fractions) != 3 or not (all(share >= 0 for share in fractions) and abs(sum(fractions) - 1) <= 1e-6):
        raise Fm2Error(f"prepare: fractions must be three shares that add up to 1, got {tuple(fractions)}")
    shares = [0.0 if own_source else share for share, own_source in zip(fractions, has_source, strict=True)]
    if sum(shares) <= 0 or (training_required and shares[0] <= 0):
        raise Fm2Error(f"prepare: the fractions {tuple(fractions)} leave no rows for training")
    return tuple(share / sum(shares) for share in shares)


def random_split(rows: Values, fractions: Sequence[float], seed: int) -> Assignment:
    """Assign rows by a hash of the seed and the row number; nothing else affects the split of a row.

    >>> random_split(np.arange(6), (0.5, 0.25, 0.25), seed=1)
    array([0, 1, 1, 1, 2, 0], dtype=uint8)
    """
    mixed = _mix(_mix(np.array([seed], dtype=np.int64).astype(np.uint64)) + rows.astype(np.uint64))
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.searchsorted(np.cumsum(fractions)[:2], share, side="right").astype(np.uint8)


def ordered_split(blocks: Callable[[], Iterable[Values]], fractions: Sequence[float]) -> Callable[[Values], Assignment]:
    """Return a function that assigns the earliest values to training and the latest to the test split.

    Rows with the same value stay together, in the earlier split. ``blocks`` yields the values of all rows each time it
    is called. They are counted, never kept in memory.

    >>> assign = ordered_split(lambda: [np.array([30, 10, 20, 20, 40])], (0.6, 0.2, 0.2))
    >>> assign(np.array([10, 20, 30, 40]))
    array([0, 0, 1, 2], dtype=uint8)
    >>> ordered_split(lambda: [np.array([30, 10, 20])], (0, 0.4, 0.6))(np.array([10, 20, 30]))
    array([1, 2, 2], dtype=uint8)
    """
    total = 0
    low = np.iinfo(np.int64).max
    high = np.iinfo(np.int64).min
    for block in blocks():
        if len(block):
            total += len(block)
            low = min(low, int(block.min()))
            high = max(high, int(block.max()))
    ends = [min(total, max(1, round(total * share)) if share else 0) for share in np.cumsum(fractions)[:2]]
    searches = [_RankSearch(end - 1, low, high) if end else None for end in ends]
    while active := [search for search in searches if search and search.low < search.high]:
        for block in blocks():
            for search in active:
                search.count(block)
        for search in active:
            search.narrow()
    last = np.array([search.low if search else np.iinfo(np.int64).min for search in searches])
    return lambda values: np.searchsorted(last, values, side="left").astype(np.uint8)


class _RankSearch:
    """Find the value of a rank: narrow its range with one histogram per pass over the values."""

    def __init__(self, rank: int, low: int, high: int) -> None:
        self._rank = rank  # among the values in the range
        self._set_range(low, high)

    def _set_range(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self._edges = np.unique(np.linspace(low, high + 1, HISTOGRAM_BINS + 1).astype(np.int64))
        self._counts = np.zeros(len(self._edges) - 1, np.int64)

    def count(self, values: Values) -> None:
        """Add values to the histogram."""
        inside = values[(values >= self.low) & (values <= self.high)]
        bins = np.searchsorted(self._edges, inside, side="right") - 1
        self._counts += np.bincount(bins, minlength=len(self._counts))

    def narrow(self) -> None:
        """Reduce the range to the bin of the rank."""
        index = int(np.searchsorted(np.cumsum(self._counts), self._rank, side="right"))
        self._rank -= int(self._counts[:index].sum())
        self._set_range(int(self._edges[index]), int(self._edges[index + 1]) - 1)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits: the finalizer of the splitmix64 generator."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
