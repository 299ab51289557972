"""Initial weights: a model draws all of them from one generator, in the order of its modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Seed = int | torch.Generator | None


def generator(seed: Seed) -> torch.Generator | None:
    """Return the generator of a model's initial weights, or None if they stay zero because they will be loaded."""
    return torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, source: torch.Generator | None) -> None:
    """Fill a tensor with normal random numbers of standard deviation ``scale``; without a generator, do nothing."""
    if source is not None:
        weight.normal_(0, scale, generator=source)


def initialize_all(module: nn.Module, source: torch.Generator | None) -> None:
    """Call the method ``draw(source)``, which draws a part's own weights, of a module and of all its descendants."""
    for part in module.modules():
        draw = getattr(part, "draw", None)
        if source is not None and draw is not None:
            draw(source)
