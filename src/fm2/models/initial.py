"""Initial weights: a model draws all of them from one generator, in the order of its modules."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

Seed = int | torch.Generator | None


@runtime_checkable
class Initializes(Protocol):
    """A module that draws the initial values of its own parameters."""

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial values of this module's parameters, except those of its children."""


def generator(seed: Seed) -> torch.Generator | None:
    """Return the generator of a model's initial weights, or None if they stay zero because they will be loaded."""
    return torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, source: torch.Generator | None) -> None:
    """Fill a tensor with normal random numbers of standard deviation ``scale``; without a generator, do nothing."""
    if source is not None:
        weight.normal_(0, scale, generator=source)


def initialize_all(module: nn.Module, source: torch.Generator | None) -> None:
    """Draw the initial weights of a module and of all its descendants that implement :class:`Initializes`."""
    if source is None:
        return
    for part in module.modules():
        if isinstance(part, Initializes):
            part.draw(source)
