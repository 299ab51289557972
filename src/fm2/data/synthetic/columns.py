"""The columns of a synthetic log: how many values each has, and how often each value occurs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.data.presets import CRITEO_FIELD_SIZES, CRITEO_NUMERIC_FIELDS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUMERIC_LIMIT = 400  # floor(ln(x)²) < 400 means x < e^20, which fits into 32 bits


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
    criteo_numeric = CRITEO_FIELD_SIZES[:CRITEO_NUMERIC_FIELDS]
    criteo_categorical = CRITEO_FIELD_SIZES[CRITEO_NUMERIC_FIELDS:]
    criteo = np.concatenate([np.resize(criteo_numeric, numeric), np.resize(criteo_categorical, categorical)])
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
