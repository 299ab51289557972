"""Explanations: the contributions of fields and pairs of fields to a prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fm2.evaluation.metrics import sigmoid


@dataclass(frozen=True)
class Explanation:
    """The contributions of the bias, each field and each pair of fields to a logit, which is their sum.

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
        """The sum of all contributions."""
        return self.bias + math.fsum(self.fields.values()) + math.fsum(self.pairs.values())

    @property
    def probability(self) -> float:
        """The click probability."""
        return float(sigmoid(np.array(self.logit)))

    def largest(self, count: int = 10) -> list[tuple[str, float]]:
        """Return the contributions of the largest absolute value, by name, without the bias."""
        pairs = {f"{first} × {second}": term for (first, second), term in self.pairs.items()}
        return sorted((self.fields | pairs).items(), key=lambda contribution: -abs(contribution[1]))[:count]
