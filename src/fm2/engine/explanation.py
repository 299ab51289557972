"""Why a row has its probability."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fm2.evaluation.metrics import sigmoid


@dataclass(frozen=True)
class Explanation:
    """What the bias, every field and every pair of fields adds to a logit, which is their sum.

    >>> explanation = Explanation(-1.0, {"site": 0.25, "ad": 0.0}, {("site", "ad"): 0.75})
    >>> explanation.logit, explanation.probability
    (0.0, 0.5)
    >>> explanation.largest(1)
    [('site × ad', 0.75)]
    """

    bias: float
    fields: dict[str, float]
    pairs: dict[tuple[str, str], float]

    @property
    def logit(self) -> float:
        """The sum of everything."""
        return self.bias + math.fsum(self.fields.values()) + math.fsum(self.pairs.values())

    @property
    def probability(self) -> float:
        """The click probability."""
        return float(sigmoid(np.array(self.logit)))

    def largest(self, count: int = 10) -> list[tuple[str, float]]:
        """Give the contributions that matter most, by name."""
        every = {**self.fields, **{f"{one} × {other}": term for (one, other), term in self.pairs.items()}}
        return sorted(every.items(), key=lambda entry: -abs(entry[1]))[:count]
