"""The ranges of numbers that features stand for, as text."""

from __future__ import annotations

import math

from fm2.data.vocabulary import UNKNOWN, Vocabulary
from fm2.field import Field

TIMES = " × "  # between the values of a cross
LARGEST_BUCKET = 2000  # exp(√2000) has 20 digits: larger integers are not exact anyway


def feature_text(field: Field, vocabulary: Vocabulary, id: int) -> str | None:
    """Return the text of a feature: its value, or the range of numbers in its bucket; None is the missing value.

    In a cross, "missing" stands for a missing value.

    >>> import dataclasses, numpy as np
    >>> price = Field("price", "numeric", transform="quantiles", buckets=3)
    >>> buckets = dataclasses.replace(Vocabulary.of(["1", "0", "2", ""]), boundaries=np.array([2.5, 7], np.float32))
    >>> [feature_text(price, buckets, id) for id in range(5)]
    ['<unknown>', '2.5 ≤ x < 7', 'x < 2.5', '7 ≤ x', None]
    >>> count = Field("count", "numeric")
    >>> [feature_text(count, Vocabulary.of(["-1", "2", "3", "5", "11"]), id) for id in range(1, 6)]
    ['-1', '2', '3 to 4', '6 to 7', '21 to 23']
    """
    text = vocabulary.value(id)
    if text and field.cross:
        return TIMES.join(part or "missing" for part in text.split(TIMES))
    if text is None or text == UNKNOWN or field.kind != "numeric" or vocabulary.hashed:
        return text
    if field.transform == "quantiles":
        return _bucket_range(int(text), vocabulary.boundaries.tolist())
    return _log_square_range(int(text)) if field.transform == "log_square" else text


def _bucket_range(bucket: int, boundaries: list[float]) -> str:
    low = f"{boundaries[bucket - 1]:.6g} ≤ " if bucket > 0 else ""
    high = f" < {boundaries[bucket]:.6g}" if bucket < len(boundaries) else ""
    return f"{low}x{high}"


def _log_square_range(bucket: int) -> str:
    """Return the integers x with ceil(ln(x)² + 1) = bucket; up to 2, an integer is its own bucket."""
    if not 2 < bucket <= LARGEST_BUCKET:
        return str(bucket)
    low, high = math.floor(math.exp(math.sqrt(bucket - 2))) + 1, math.floor(math.exp(math.sqrt(bucket - 1)))
    return f"{low} to {high}" if low < high else str(low)
