"""Pruning during training: when to prune, how many weights, which, and how they stay zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SETTLED = 0.99


@dataclass(frozen=True)
class Schedule:
    """The fraction 1 - D^(k / Ω) of the target sparsity that is reached after k steps of pruning.

    k counts the steps after ``warm_up``, D is ``damping`` and Ω ``damping_steps``. Weights are pruned every ``every``
    steps.

    >>> schedule = Schedule(warm_up=100, every=10, damping=0.5, damping_steps=20)
    >>> schedule.share(99), schedule.share(120), schedule.share(129), schedule.share(140)
    (0.0, 0.5, 0.5, 0.75)
    >>> schedule.is_due(120), schedule.is_due(129)
    (True, False)
    """

    warm_up: int
    every: int
    damping: float
    damping_steps: float

    def is_due(self, step: int) -> bool:
        """Return whether weights are pruned after this step."""
        return step > self.warm_up and (step - self.warm_up) % self.every == 0

    def share(self, step: int) -> float:
        """Return the fraction of the target sparsity that is reached after this step."""
        pruning_steps = max(0, step - self.warm_up) // self.every * self.every
        return 1 - math.pow(self.damping, pruning_steps / self.damping_steps)

    def is_settled(self, step: int) -> bool:
        """Return whether 99% of the target sparsity is reached; it approaches 100% without ever reaching it."""
        return self.share(step) >= SETTLED


def smallest(weight: Tensor, share: float) -> Tensor:
    """Return a mask of the fraction ``share`` of weights with the smallest magnitudes, including zeros.

    The largest weight is never included.

    >>> smallest(torch.tensor([3.0, -1.0, 0.0, 2.0]), 0.5)
    tensor([False,  True,  True, False])
    >>> smallest(torch.tensor([3.0, -1.0, 2.0]), 0.9)
    tensor([False,  True,  True])
    """
    magnitudes = weight.detach().abs()
    count = min(round(share * magnitudes.numel()), magnitudes.numel() - 1)
    if count <= 0:
        return torch.zeros_like(magnitudes, dtype=torch.bool)
    return magnitudes <= magnitudes.view(-1).kthvalue(count).values


def keep_zeros(weight: Tensor) -> None:
    """Register a hook that sets the gradient of zero weights to zero, so that they stay zero."""
    weight.register_hook(lambda gradient: gradient * (weight.detach() != 0))  # type: ignore[no-untyped-call]


def count_zeros(weight: Tensor) -> int:
    """Return the number of weights that are zero."""
    return weight.numel() - int(weight.detach().count_nonzero())
