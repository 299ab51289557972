"""The columns of a synthetic log: how many values each has, how often each occurs, and its raw values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.presets import CRITEO_FIELD_SIZES, CRITEO_NUMERIC_FIELDS
from fm2.errors import require

if TYPE_CHECKING:
    import polars

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUMERIC_LIMIT = 400  # ceil(ln(x)² + 1) < 400 means x < e^20, which fits into 32 bits


@dataclass(frozen=True)
class Column:
    """A column in which the r-th most frequent value has a share of about r to the power ``-exponent``.

    Value 0 is the missing cell. In a numeric column, value r represents all integers that the transform ``log_square``
    maps to r - 1.
    """

    name: str
    numeric: bool
    size: int
    exponent: float
    missing: float

    def probabilities(self) -> Floats:
        """Return the probability of the missing cell and of each value."""
        steps = np.arange(1.0, self.size + 2) ** (1 - self.exponent)
        return np.concatenate([[self.missing], (1 - self.missing) * -np.diff(steps) / (1 - steps[-1])])

    def draw(self, uniform: Floats) -> Ints:
        """Turn uniform numbers from [0, 1) into values: the inverse distribution function of a power law, rounded down.

        Numbers below ``missing`` fall to the left of the power law, where the formula yields less than 1: value 0.
        """
        power = 1 - self.exponent
        scaled = (uniform - self.missing) / (1 - self.missing)
        ranks: Floats = (1 + scaled * ((self.size + 1) ** power - 1)) ** (1 / power)
        return np.minimum(ranks, self.size).astype(np.int64)


def plan_columns(fields: int, features: int, rng: np.random.Generator) -> list[Column]:
    """Plan the columns of a log: a third of the ``fields`` are numeric; all have ``features`` values in total."""
    numeric = fields // 3
    sizes = field_sizes(numeric, fields - numeric, features)
    names = [f"I{i + 1}" for i in range(numeric)] + [f"C{i + 1}" for i in range(fields - numeric)]
    exponents = rng.uniform(1.05, 1.25, fields)
    # As in Criteo, half of the columns have almost no missing cells, the others up to a half.
    missing = np.where(rng.permutation(fields) % 2 == 0, rng.uniform(0.02, 0.45, fields), 0.0)
    return [
        Column(name, i < numeric, int(sizes[i]), float(exponents[i]), float(missing[i])) for i, name in enumerate(names)
    ]


def field_sizes(numeric: int, categorical: int, features: int) -> Ints:
    """Return sizes that are skewed like Criteo's and sum to ``features``.

    They are Criteo's sizes raised to a common power. A common factor would leave the small fields without values.
    """
    parts = np.split(np.array(CRITEO_FIELD_SIZES), [CRITEO_NUMERIC_FIELDS])
    criteo = np.concatenate([np.resize(part, count) for part, count in zip(parts, (numeric, categorical), strict=True)])
    limits = np.concatenate([np.full(numeric, NUMERIC_LIMIT), np.full(categorical, features)])

    def sizes(power: float) -> Ints:
        return np.clip(np.rint(np.minimum(criteo**power, features)), 2, limits).astype(np.int64)

    result = sizes(solve(lambda power: sizes(power).sum(), features, 0.0, 32.0))
    result[np.argmax(result)] += features - result.sum()
    return result


def solve(increasing: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Solve ``increasing(x) = target`` by bisection."""
    for _ in range(32):
        middle = (low + high) / 2
        if increasing(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class RawValues:
    """Turn drawn features into the DataFrame of a log: integers, and codes of 8 hexadecimal digits."""

    def __init__(self, columns: Sequence[Column], starts: Ints, salt: int) -> None:
        self._polars = require("polars", "train", "generating a log")
        self._fields = list(zip(columns, starts, strict=True))
        self._codes = {
            column.name: self._polars.Series([None, *hex_codes(start + np.arange(column.size), salt)])
            for column, start in self._fields
            if not column.numeric
        }

    @property
    def schema(self) -> dict[str, Any]:
        """The names and types of the columns."""
        pl = self._polars
        columns = {column.name: pl.Int32 if column.numeric else pl.String for column, _ in self._fields}
        return {"label": pl.UInt8, **columns}

    def frame(self, labels: NDArray[np.bool_], features: Ints, rng: np.random.Generator) -> polars.DataFrame:
        """Return the DataFrame of labels and features (rows × fields)."""
        series = {"label": self._polars.Series(labels.astype(np.uint8))}
        for i, (column, start) in enumerate(self._fields):
            values = features[:, i] - start
            if column.numeric:
                numbers = integers(values, rng.random(len(values))).astype(np.int32)
                series[column.name] = self._polars.Series(numbers).set(self._polars.Series(values == 0), None)
            else:
                series[column.name] = self._codes[column.name].gather(values)
        frame: polars.DataFrame = self._polars.DataFrame(series)
        return frame


def integers(values: Ints, uniform: Floats) -> Ints:
    """Draw for each value r > 0 one of the integers that the transform ``log_square`` maps to r - 1.

    This is r - 1 itself if it is at most 2, else all x with r - 3 < ln(x)² <= r - 2.
    """
    transformed = np.arange(-1.0, values.max())  # the result of the transform, by value
    below, last = (np.floor(np.exp(np.sqrt(np.maximum(0, transformed - k)))) for k in (2, 1))
    below = np.where(transformed <= 2, transformed - 1, below)
    last = np.where(transformed <= 2, transformed, last)
    chosen: Ints = (below[values] + 1 + np.floor(uniform * (last - below)[values])).astype(np.int64)
    return chosen


def hex_codes(numbers: Ints, salt: int) -> list[str]:
    """Return a distinct code of 8 hexadecimal digits for each number below 2³².

    All mixing steps are invertible, so that different numbers have different codes.
    """
    mixed = (numbers ^ salt).astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    digits = mixed.astype(">u4").tobytes().hex()
    return [digits[i : i + 8] for i in range(0, len(digits), 8)]
