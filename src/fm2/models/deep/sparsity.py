"""Weights that are pruned while a network is trained: when, how many, which, and how they stay zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SETTLED = 0.99


@dataclass(frozen=True)
class Schedule:
    """How much of its target sparsity S a network has after so many steps: S (1 - D^(k / Ω)).

    k counts the steps after ``warm_up``, D is ``damping`` and Ω ``damping_steps``. Weights are pruned once in ``every``
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
        """Tell whether weights are pruned after this step."""
        return step > self.warm_up and (step - self.warm_up) % self.every == 0

    def share(self, step: int) -> float:
        """Give the share of the target sparsity that is reached after this step."""
        pruned = max(0, step - self.warm_up) // self.every * self.every
        return 1 - math.pow(self.damping, pruned / self.damping_steps)

    def is_settled(self, step: int) -> bool:
        """Tell whether all but a hundredth of the target is reached: the rest takes for ever."""
        return self.share(step) >= SETTLED


def smallest(weight: Tensor, share: float) -> Tensor:
    """Tell which weights are this share of them that is nearest to zero, those that are zero already among them.

    However few there are, the largest is left.

    >>> smallest(torch.tensor([3.0, -1.0, 0.0, 2.0]), 0.5)
    tensor([False,  True,  True, False])
    >>> smallest(torch.tensor([3.0, -1.0, 2.0]), 0.9)
    tensor([False,  True,  True])
    """
    sizes = weight.detach().abs()
    count = min(round(share * sizes.numel()), sizes.numel() - 1)
    return sizes <= sizes.view(-1).kthvalue(count).values if count > 0 else torch.zeros_like(sizes, dtype=torch.bool)


def hold_zeros(weight: Tensor) -> None:
    """Let weights that are zero have no gradient, so that they stay zero."""
    weight.register_hook(lambda slope: slope * (weight.detach() != 0))  # type: ignore[no-untyped-call]


def zeros(weight: Tensor) -> int:
    """Count the weights that are zero."""
    return weight.numel() - int(weight.detach().count_nonzero())
