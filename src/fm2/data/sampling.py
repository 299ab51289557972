"""What a row counts: its label, impressions and weight, and the sampling of training rows without a click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.log_reader import Block
from fm2.data.splits import DROPPED, Assignment, uniform
from fm2.errors import Fm2Error

Weights = NDArray[np.float32] | None
TRAIN = 0


@dataclass(frozen=True)
class NegativeSampling:
    """Keep a share of the training impressions without a click: the number of kept ones has the exact expectation.

    A row with m of them keeps floor(m rate + u), where u in [0, 1) is a hash of the seed and the row number. For a row
    that is one impression, this means that the row is kept with the probability ``rate``.
    """

    rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise Fm2Error(f"prepare: negative_rate must be above 0 and at most 1, got {self.rate}")

    def drop(self, block: Block, split: Assignment) -> Assignment:
        """Return the split of each row, or DROPPED for training rows of which nothing is left."""
        if self.rate == 1:
            return split
        left = block.labels + self._kept(block)
        return np.where((split == TRAIN) & (left == 0), np.uint8(DROPPED), split)

    def impressions(self, block: Block, split: Assignment) -> NDArray[np.uint32] | None:
        """Return the number of impressions that are left of each row; None if every row is one impression."""
        if block.impressions is None or self.rate == 1:
            return block.impressions
        left = block.labels + self._kept(block)
        return np.where(split == TRAIN, left, block.impressions).astype(np.uint32)

    def _kept(self, block: Block) -> NDArray[np.uint32]:
        """Return the number of impressions without a click that each row would keep in training."""
        total = 1 if block.impressions is None else block.impressions
        kept = (total - block.labels) * self.rate + uniform(block.rows, self.seed, stream=1)
        return kept.astype(np.uint32)


def targets(block: Block, impressions: NDArray[np.uint32] | None) -> tuple[NDArray[Any], Weights]:
    """Return the labels and weights of rows as a dataset stores them: click rates, weighted by the impressions."""
    if impressions is None:
        return block.labels, block.weights
    weights = impressions * (1.0 if block.weights is None else block.weights.astype(np.float64))
    shown = np.maximum(impressions, 1)  # a dropped row has no impressions
    return block.labels / shown, weights.astype(np.float32)
