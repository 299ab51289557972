"""Assign rows to the training, validation and test splits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error

SPLITS = ("train", "validation", "test")

DROPPED = len(SPLITS)  # the row belongs to no split

Values = NDArray[np.int64]
Assignment = NDArray[np.uint8]  # the index in SPLITS of each row, or DROPPED

HISTOGRAM_BINS = 4096


def check_fractions(
    fractions: Sequence[float], has_source: Sequence[bool] = (False, False, False), training_required: bool = True
) -> tuple[float, ...]:
    """Return the share of each split in the rows to be split; a split that has its own source gets none of them."""
    if len(fractions) != 3 or not (all(share >= 0 for share in fractions) and abs(sum(fractions) - 1) <= 1e-6):
        raise Fm2Error(f"prepare: fractions must be three shares that add up to 1, got {tuple(fractions)}")
    shares = [0.0 if own_source else share for share, own_source in zip(fractions, has_source, strict=True)]
    if sum(shares) <= 0 or (training_required and shares[0] <= 0):
        raise Fm2Error(f"prepare: the fractions {tuple(fractions)} leave no rows for training")
    return tuple(share / sum(shares) for share in shares)


def random_split(rows: Values, fractions: Sequence[float], seed: int) -> Assignment:
    """Assign rows by a hash of the seed and the row number; nothing else affects the split of a row."""
    return np.searchsorted(np.cumsum(fractions)[:2], uniform(rows, seed), side="right").astype(np.uint8)


def uniform(rows: Values, seed: int, stream: int = 0) -> NDArray[np.float64]:
    """Return a number in [0, 1) for every row: a hash of the seed and the row number, independent for each stream."""
    start = _mix(np.array([seed], dtype=np.int64).astype(np.uint64))
    for _ in range(stream):
        start = _mix(start)
    mixed = _mix(start + rows.astype(np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def ordered_split(blocks: Callable[[], Iterable[Values]], fractions: Sequence[float]) -> Callable[[Values], Assignment]:
    """Return a function that assigns the earliest values to training and the latest to the test split.

    Rows with the same value stay together, in the earlier split. ``blocks`` yields the values of all rows each time it
    is called. They are counted, never kept in memory.
    """
    ranges = [(len(block), int(block.min()), int(block.max())) for block in blocks() if len(block)]
    total = sum(count for count, _, _ in ranges)
    low = min((lowest for _, lowest, _ in ranges), default=0)
    high = max((highest for _, _, highest in ranges), default=0)
    ends = [min(total, max(1, round(total * share)) if share else 0) for share in np.cumsum(fractions)[:2]]
    searches = [_RankSearch(end - 1, low, high) if end else None for end in ends]
    while active := [search for search in searches if search and search.low < search.high]:
        for block in blocks():
            for search in active:
                search.count(block)
        searches = [search.narrow() if search and search.low < search.high else search for search in searches]
    last = np.array([search.low if search else np.iinfo(np.int64).min for search in searches])
    return functools.partial(_split_at, last)


def _split_at(last: Values, values: Values) -> Assignment:
    return np.searchsorted(last, values, side="left").astype(np.uint8)


class _RankSearch:
    """Find the value of a rank: narrow its range with one histogram per pass over the values."""

    def __init__(self, rank: int, low: int, high: int) -> None:
        self._rank = rank  # among the values in the range
        self.low = low
        self.high = high
        self._edges = np.unique(np.linspace(low, high + 1, HISTOGRAM_BINS + 1).astype(np.int64))
        self._counts = np.zeros(len(self._edges) - 1, np.int64)

    def count(self, values: Values) -> None:
        inside = values[(values >= self.low) & (values <= self.high)]
        bins = np.searchsorted(self._edges, inside, side="right") - 1
        self._counts += np.bincount(bins, minlength=len(self._counts))

    def narrow(self) -> _RankSearch:
        """Return a search in the bin of the rank."""
        index = int(np.searchsorted(np.cumsum(self._counts), self._rank, side="right"))
        rank = self._rank - int(self._counts[:index].sum())
        return _RankSearch(rank, int(self._edges[index]), int(self._edges[index + 1]) - 1)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits: the finalizer of the splitmix64 generator."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
