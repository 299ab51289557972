"""Dropout that depends only on the seed and the step, so that a resumed run drops the same units."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

CHANCES = 1 << 16


class Noise:
    """The random numbers of all dropout layers of a model.

    NumPy's generator restarts within microseconds and draws 16 random bits ten times as fast as torch draws a float.
    """

    def __init__(self) -> None:
        self.restart(0, 0)

    def restart(self, seed: int, step: int) -> None:
        """Restart the random numbers for a training step."""
        self._random = np.random.Generator(np.random.SFC64([seed, step]))

    def keep_mask(self, shape: torch.Size, probability: float) -> Tensor:
        """Return a random mask of the elements to keep; the probability is rounded to 16 bits."""
        drawn = self._random.integers(0, CHANCES, tuple(shape), dtype=np.uint16)
        return torch.from_numpy(drawn < round(probability * CHANCES))


class Dropout(nn.Module):
    """Dropout: in training, set elements to zero with probability ``p`` and scale the others by 1 / (1 - ``p``).

    >>> drop = Dropout(0.5, Noise())
    >>> sorted(set(drop(torch.ones(1000)).tolist()))
    [0.0, 2.0]
    >>> drop.eval()(torch.ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, p: float, noise: Noise) -> None:
        super().__init__()
        self.p = p
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        mask = self.noise.keep_mask(x.shape, 1 - self.p).to(x)
        return x * mask.mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"
