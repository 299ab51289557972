"""Initial weights: a model draws all of them from one generator, in the order of its modules."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

Seed = int | torch.Generator | None


def generator(seed: Seed) -> torch.Generator | None:
    """Return the generator of a model's initial weights, or None if they stay zero because they will be loaded."""
    return torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed


@torch.no_grad()
def fill_normal(weight: Tensor, scale: float, source: torch.Generator | None) -> None:
    """Fill a tensor with normal random numbers of standard deviation ``scale``; without a generator, do nothing.

    The weights of a table that is stored elsewhere receive their numbers in pieces.
    """
    if source is None:
        return
    receive = getattr(weight, "receive", None)
    if receive is None:
        weight.normal_(0, scale, generator=source)
        return
    for begin, values in normal_pieces(weight.numel(), scale, source):
        receive(begin, values)


def normal_pieces(
    count: int, scale: float, source: torch.Generator, size: int = 1 << 20
) -> Iterator[tuple[int, Tensor]]:
    """Draw normal random numbers in pieces, the same that one call draws, and yield where each piece begins.

    Torch draws them 16 at a time and draws the last 16 again if their number is not a multiple of 16. The last piece
    therefore has at least 16 numbers.

    >>> pieces = [values for _, values in normal_pieces(49, 1.0, torch.Generator().manual_seed(3), size=16)]
    >>> torch.equal(torch.cat(pieces), torch.empty(49).normal_(0, 1, generator=torch.Generator().manual_seed(3)))
    True
    """
    begin = 0
    while begin < count:
        end = begin + size if begin + size + 16 <= count else count
        yield begin, torch.empty(end - begin).normal_(0, scale, generator=source)
        begin = end


def initialize_all(module: nn.Module, source: torch.Generator | None) -> None:
    """Call the method ``draw(source)``, which draws a part's own weights, of a module and of all its descendants."""
    for part in module.modules():
        draw = getattr(part, "draw", None)
        if source is not None and draw is not None:
            draw(source)
