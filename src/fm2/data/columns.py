"""The columns of a generated click log: how many values each has, and how often each value occurs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.data.bisection import solve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The paper's table 3: the number of features in each of Criteo's 13 numeric and 26 categorical fields.
CRITEO_NUMERIC = (62, 113, 125, 50, 223, 147, 99, 78, 103, 8, 31, 56, 81)
CRITEO_CATEGORICAL = (
    *(1_457, 555, 245_195, 166_164, 305, 18, 12_054, 633, 3, 46_329, 5_228, 243_452, 3_176),
    *(26, 11_744, 225_320, 10, 4_726, 2_056, 3, 238_638, 16, 15, 67_854, 87, 50_940),
)
NUMERIC_LIMIT = 400  # floor(ln(x)²) below it keeps x below e^20, within 32 bits


@dataclass(frozen=True)
class Column:
    """A column whose value number r (1 is the most frequent) has a share near r to the power ``-exponent``.

    Value 0 stands for the missing cell. In a numeric column, value r stands for the integers that the transform of
    numeric fields (x > 2 becomes floor(ln(x)²), the rest stays) turns into r - 1.

    >>> Column("I1", numeric=True, size=3, exponent=1.2, missing=0.5).probabilities().round(2)
    array([0.5 , 0.27, 0.14, 0.09])
    """

    name: str
    numeric: bool
    size: int
    exponent: float
    missing: float

    def probabilities(self) -> Floats:
        """Give the probability of the missing cell and of each value."""
        steps = np.arange(1.0, self.size + 2) ** (1 - self.exponent)
        return np.concatenate([[self.missing], (1 - self.missing) * -np.diff(steps) / (1 - steps[-1])])

    def draw(self, uniform: Floats) -> Ints:
        """Turn numbers from [0, 1) into values: the inverse of a power law's distribution function, rounded down.

        The first ``missing`` of the interval lies left of the power law, where the formula gives less than 1: value 0.
        """
        power = 1 - self.exponent
        along = (uniform - self.missing) / (1 - self.missing)
        ranks: Floats = (1 + along * ((self.size + 1) ** power - 1)) ** (1 / power)
        return np.minimum(ranks, self.size).astype(np.int64)


def plan_columns(fields: int, features: int, rng: np.random.Generator) -> list[Column]:
    """Plan a table of so many fields, a third of them numeric, with about so many values in all."""
    numeric = fields // 3
    sizes = field_sizes(numeric, fields - numeric, features)
    names = [f"I{i + 1}" for i in range(numeric)] + [f"C{i + 1}" for i in range(fields - numeric)]
    exponents = rng.uniform(1.05, 1.25, fields)
    # Half of Criteo's columns have next to no missing cells, the others up to a half and more.
    missing = np.where(rng.permutation(fields) % 2 == 0, rng.uniform(0.02, 0.45, fields), 0.0)
    return [
        Column(name, i < numeric, int(sizes[i]), float(exponents[i]), float(missing[i])) for i, name in enumerate(names)
    ]


def field_sizes(numeric: int, categorical: int, features: int) -> Ints:
    """Give sizes that are skewed like Criteo's and sum to ``features``: Criteo's, raised to the power that fits.

    A power, not a factor: a hundredth of the features should not leave the small fields with nothing.

    >>> sizes = field_sizes(13, 26, 100_000)
    >>> int(sizes.sum()), int(sizes.max()), int(sizes.min())
    (100000, 16710, 2)
    """
    like = np.concatenate([np.resize(CRITEO_NUMERIC, numeric), np.resize(CRITEO_CATEGORICAL, categorical)])
    most = np.concatenate([np.full(numeric, NUMERIC_LIMIT), np.full(categorical, features)])

    def sizes(power: float) -> Ints:
        return np.clip(np.rint(np.minimum(like**power, features)), 2, most).astype(np.int64)

    result = sizes(solve(lambda power: sizes(power).sum(), features, 0.0, 32.0))
    result[np.argmax(result)] += features - result.sum()
    return result
