"""A model's first weights: all are drawn from one source, in the order of its modules."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

Seed = int | torch.Generator | None


@runtime_checkable
class Initializes(Protocol):
    """A module that knows how its own parameters begin."""

    def draw(self, source: torch.Generator) -> None:
        """Draw the first weights of the parameters that are directly this module's."""


def generator(seed: Seed) -> torch.Generator | None:
    """Give the source of a model's first weights; None, for zeros, where they will be loaded anyway."""
    return torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, source: torch.Generator | None) -> None:
    """Fill with normal numbers of this standard deviation; without a source, leave as it is."""
    if source is not None:
        weight.normal_(0, scale, generator=source)


def initialize_all(module: nn.Module, source: torch.Generator | None) -> None:
    """Draw the first weights of a module and of all in it that are :class:`Initializes`."""
    for part in module.modules():
        if source is not None and isinstance(part, Initializes):
            part.draw(source)
