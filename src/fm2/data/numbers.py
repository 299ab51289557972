"""What the transforms of numbers learn from the training rows, and whether integers are numbers at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.label_variance import informative_rows
from fm2.data.rows import Lists
from fm2.data.vocabulary import UNKNOWN
from fm2.schema import Field, Schema

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# In the logs of benchmarks/numeric.py, the share is above 0.9 for counts and below 0.7 for identifiers, and the
# correlation above 0.7 and below 0.5.
DENSE = 0.8
SMOOTH = 0.6
LARGEST_QUANTITY = 1e15
FEWEST_BUCKETS, FEWEST_PER_BUCKET = 8, 20


class NumberCodes:
    """Turn numbers into the codes of their features, in all fields with ``boundaries``.

    The codes of a field are its buckets, its knots, or its standardized number, then missing and unknown.
    """

    def __init__(self, schema: Schema, boundaries: Mapping[int, Floats]) -> None:
        self.boundaries = boundaries
        self._schema = schema
        self._lists = {
            index: _native.Field(0, transform=schema.fields[index].transform or "", boundaries=bounds.tolist())
            for index, bounds in boundaries.items()
            if schema.fields[index].is_list
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return NumberCodes, (self._schema, self.boundaries)

    @property
    def fields(self) -> tuple[int, ...]:
        """The fields with boundaries."""
        return tuple(self.boundaries)

    def texts(self, field: int) -> list[str]:
        """Return the text of each code."""
        if field in self._lists:
            return [*_native.number_texts(self._lists[field]), UNKNOWN]
        return [*map(str, range(len(self.boundaries[field]) + 1)), "", UNKNOWN]

    def encode(
        self, numbers: Mapping[int, NDArray[np.int32]], threads: int
    ) -> tuple[dict[int, NDArray[np.int32]], dict[int, Lists]]:
        """Return the codes of the numbers of each field, or their lists of codes; ``numbers`` are the bits of floats.

        The codes of a field with lists are 1 where the number is missing.
        """
        codes = {}
        for index, bits in numbers.items():
            values, bounds = bits.view(np.float32), self.boundaries[index]
            missing = np.isnan(values)
            buckets = np.searchsorted(bounds, values, side="right")
            of_field = missing if index in self._lists else np.where(missing, len(bounds) + 1, buckets)
            codes[index] = of_field.astype(np.int32)
        lists = {index: field for index, field in self._lists.items() if index in numbers}
        if not lists:
            return codes, {}
        stacked = np.stack([numbers[index] for index in lists])
        expanded = _native.expand_numbers(list(lists.values()), stacked, threads)
        return codes, {index: Lists(*arrays) for index, arrays in zip(lists, expanded, strict=True)}


def learn_boundaries(values: Floats, field: Field, step: int = 1, click_rate: float = 0.0) -> Floats:
    """Return what a field's transform learns from its numbers in every ``step``-th row; NaN means missing.

    These are the boundaries between the buckets of ``quantiles``, the knots of ``interpolate``, or the mean and the
    standard deviation of ``linear``.
    """
    largest = np.finfo(np.float32).max  # larger numbers became infinite, but a boundary has to be finite
    numbers = np.clip(values[~np.isnan(values)], -largest, largest)
    if len(numbers) == 0:
        return numbers
    min_count = -(-field.min_count // step)
    if field.transform == "quantiles":
        buckets = field.buckets or bucket_count(len(numbers) * step, click_rate)
        return bucket_starts(numbers, buckets, min_count)[1:]
    if field.transform == "linear":
        return mean_and_deviation(numbers)
    if field.spacing == "log":
        return log_knots(numbers, field.knots)
    return quantile_knots(numbers, field.knots, min_count)


def bucket_count(numbers: int, click_rate: float = 0.0) -> int:
    """Return how many quantile buckets that many numbers get by default: half their cube root.

    More buckets follow a curve more closely, but each then has fewer rows to learn from. The best number for a smooth
    curve grows with the cube root of the rows. Rare clicks count as fewer rows; a rate of 0 means unknown. There
    are at least 8 buckets, unless they would have fewer than 20 rows.

    >>> [bucket_count(10**power) for power in (1, 2, 3, 4, 5, 6, 8)]
    [2, 5, 8, 11, 23, 50, 232]
    >>> bucket_count(400_000), bucket_count(400_000, click_rate=0.005)
    (37, 22)
    """
    rows = informative_rows(numbers, click_rate)
    return max(round(float(np.cbrt(rows)) / 2), min(FEWEST_BUCKETS, numbers // FEWEST_PER_BUCKET), 2)


def mean_and_deviation(numbers: Floats) -> Floats:
    """Return the mean and the standard deviation, or 1 instead of 0 if all numbers are equal."""
    deviation = np.float32(numbers.std(dtype=np.float64))
    return np.array([numbers.mean(dtype=np.float64), deviation or 1.0], np.float32)


def log_knots(numbers: Floats, knots: int) -> Floats:
    """Return knots from the minimum to the maximum, evenly spaced in sign(x)·ln(1 + |x|).

    >>> log_knots(np.array([0, 7, 63], np.float32), 4).tolist()
    [0.0, 3.0, 15.0, 63.0]
    """
    ends = np.array([numbers.min(), numbers.max()], np.float64)
    low, high = np.copysign(np.log1p(np.abs(ends)), ends).tolist()
    positions = np.linspace(low, high, knots)
    spaced = np.copysign(np.expm1(np.abs(positions)), positions)
    spaced[[0, -1]] = ends
    return np.unique(spaced.astype(np.float32))


def quantile_knots(numbers: Floats, knots: int, min_count: int = 1) -> Floats:
    """Return the smallest value of each quantile bucket, and the maximum.

    >>> quantile_knots(np.array([0] * 90 + list(range(1, 11)), np.float32), 4).tolist()
    [0.0, 1.0, 6.0, 10.0]
    """
    return np.unique(np.append(bucket_starts(numbers, knots - 1, min_count), numbers.max()))


def bucket_starts(numbers: Floats, buckets: int, min_count: int = 1) -> Floats:
    """Return the smallest value of each of about ``buckets`` buckets with at least ``min_count`` values.

    A value more frequent than the average bucket has a bucket of its own, and the others share the remaining buckets
    evenly. If there are at most ``buckets`` distinct values, each has its own.

    >>> bucket_starts(np.array([0] * 90 + list(range(1, 11)), np.float32), buckets=3).tolist()
    [0.0, 1.0, 6.0]
    """
    distinct, counts = np.unique(numbers, return_counts=True)
    starts = _starts(counts, buckets) if len(distinct) > buckets else np.arange(len(distinct))
    return distinct[_merge_rare(starts, counts, min_count)]


def _starts(counts: Ints, buckets: int) -> Ints:
    """Return where the buckets of more than ``buckets`` distinct values begin; ``counts`` is how often each occurs."""
    frequent = np.zeros(len(counts), bool)
    while (added := ~frequent & (counts * (buckets - frequent.sum()) >= counts[~frequent].sum())).any():
        frequent |= added
    # The frequent values divide the others into segments. Each gets its share of the remaining buckets, rounded.
    others = np.where(frequent, 0, counts)
    segment = np.cumsum(frequent)
    mass = np.bincount(segment, others)
    parts = np.rint(mass * (buckets - frequent.sum()) / mass.sum())
    before = np.cumsum(others) - others - (np.cumsum(mass) - mass)[segment]
    part = np.floor((before + others / 2) * (parts / np.maximum(mass, 1))[segment])
    part[frequent | (parts[segment] == 0)] = -1  # a segment without a bucket joins the frequent value next to it
    if parts[0] == 0:
        segment = np.maximum(segment, 1)
    changes = (np.diff(segment) != 0) | (np.diff(part) != 0)
    return np.flatnonzero(np.concatenate([[True], changes]))


def _merge_rare(starts: Ints, counts: Ints, min_count: int) -> Ints:
    """Merge every bucket with fewer than ``min_count`` values with the next one, the last ones with the one before."""
    if len(starts) == 0:
        return starts
    sizes = np.add.reduceat(counts, starts)
    kept = [0]
    size = 0
    for bucket in range(len(starts)):
        if size >= min_count:
            kept.append(bucket)
            size = 0
        size += int(sizes[bucket])
    if size < min_count and len(kept) > 1:
        kept.pop()
    return starts[kept]


def are_quantities(integers: NDArray[Any], min_count: int) -> bool:
    """Return whether integers look like counts or amounts rather than identifiers.

    They are amounts if most of them are too rare to be categories, but have at most 15 digits. They are counts if
    almost every integer between the 10% and the 90% quantile occurs, about as often as its neighbors; identifiers
    have gaps, or frequencies in random order.

    >>> ages = np.random.default_rng(0).binomial(100, 0.4, size=10_000)
    >>> are_quantities(ages, min_count=4), are_quantities(ages * 7, min_count=4)
    (True, False)
    """
    values, counts = np.unique(integers, return_counts=True)
    if not np.abs(values).max() < LARGEST_QUANTITY:
        return False
    if 2 * counts[counts < min_count].sum() > len(integers):
        return True
    low, high = np.quantile(integers, [0.1, 0.9], method="nearest")
    if np.count_nonzero((values >= low) & (values <= high)) < DENSE * (high - low + 1):
        return False
    logarithms = np.log(counts)
    if np.ptp(logarithms[1:]) == 0 or np.ptp(logarithms[:-1]) == 0:
        return False
    return bool(np.corrcoef(logarithms[:-1], logarithms[1:])[0, 1] >= SMOOTH)
