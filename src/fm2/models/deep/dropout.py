"""Dropout that a seed and the number of the step decide, so that a training that is resumed drops the same."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

CHANCES = 1 << 16


class Noise:
    """Where the dropouts of a model draw from.

    Numpy's generator is begun anew in microseconds and gives 16 random bits ten times as fast as torch gives a float.
    """

    def __init__(self) -> None:
        self.restart(0, 0)

    def restart(self, seed: int, step: int) -> None:
        """Begin the numbers of a step."""
        self._random = np.random.Generator(np.random.SFC64([seed, step]))

    def kept(self, shape: torch.Size, share: float) -> Tensor:
        """Tell at random which elements are among the ``share`` that is kept; it is rounded to 16 bits."""
        drawn = self._random.integers(0, CHANCES, tuple(shape), dtype=np.uint16)
        return torch.from_numpy(drawn < round(share * CHANCES))


class Dropout(nn.Module):
    """Sets a share of what goes through to zero in training, and scales up the rest.

    >>> drop = Dropout(0.5, Noise())
    >>> sorted(set(drop(torch.ones(1000)).tolist()))
    [0.0, 2.0]
    >>> drop.eval()(torch.ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, share: float, noise: Noise) -> None:
        super().__init__()
        self.share, self.noise = share, noise

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        kept = self.noise.kept(x.shape, 1 - self.share).to(x)
        return x * kept.mul_(1 / (1 - self.share))

    def extra_repr(self) -> str:
        return f"{self.share}"
