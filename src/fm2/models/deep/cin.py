"""The compressed interaction network of xDeepFM."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fm2.models.initial import fill_normal


class FeatureMaps(nn.Module):
    """A layer of a CIN: ``inputs`` products become feature maps; some go on, and some are pooled.

    ``weight`` has a row per map, those that go on first. A pooled map is only ever multiplied by its weight in the
    output, and added up: so all of them are one map, whose weights are the sum of theirs, each times its ``output``.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, inputs: int, maps: int, passed: int, pooled: int) -> None:
        super().__init__()
        self.passed = passed
        self.weight = nn.Parameter(torch.zeros(maps, inputs))
        self.output = nn.Parameter(torch.zeros(pooled))

    def draw(self, source: torch.Generator) -> None:
        """Draw all weights, as those of linear layers."""
        fill_normal(self.weight, math.sqrt(2 / sum(self.weight.shape)), source)
        fill_normal(self.output, math.sqrt(2 / (len(self.output) + 1)), source)

    def pooled(self) -> Tensor:
        """Give the weights of all pooled maps as those of one, [inputs]."""
        return self.output @ self.weight[-len(self.output) :]

    def forward(self, products: Tensor) -> Tensor:
        """Make the maps that go on, and last the one of all that are pooled, from products [inputs, columns]."""
        return torch.cat([self.weight[: self.passed], self.pooled()[None]]) @ products


class CIN(nn.Module):
    """Xᵏₕ = Σᵢⱼ Wᵏʰᵢⱼ (Xᵏ⁻¹ᵢ ∘ X⁰ⱼ), from embeddings X⁰ [rows, fields, K] to logits, Σₖₕ wᵏₕ Σ_d Xᵏₕ_d: [rows].

    The products are vector-wise: a coordinate meets none but itself. Here every coordinate of every row is a column,
    and a layer one matrix product. What is not needed is not made: the first layer has one weight for both orders of a
    pair of fields, pooled maps are one, and the last layer, all pooled, is a bilinear form of the maps before it.

    >>> CIN(4, (6, 6), split=True)(torch.ones(5, 4, 3)).shape
    torch.Size([5])
    """

    __call__: Callable[..., Tensor]
    pairs: Tensor

    def __init__(self, fields: int, widths: Sequence[int], split: bool) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.triu_indices(fields, fields), persistent=False)
        layers, inputs = [], self.pairs.shape[1]
        for left, maps in zip(reversed(range(len(widths))), widths, strict=True):
            passed = (maps // 2 if split else maps) if left else 0
            layers.append(FeatureMaps(inputs, maps, passed, maps - passed if split else maps))
            inputs = passed * fields
        self.fields, self.layers = fields, cast("Sequence[FeatureMaps]", nn.ModuleList(layers))

    def forward(self, embedding: Tensor) -> Tensor:
        x = embedding.transpose(0, 1).reshape(self.fields, -1)
        first, second = self.pairs
        maps = self.layers[0](x.index_select(0, first) * x.index_select(0, second))
        logits = maps[-1]
        for layer in self.layers[1:-1]:
            maps = layer((maps[:-1, None] * x).flatten(0, 1))
            logits = logits + maps[-1]
        if len(self.layers) > 1:
            form = self.layers[-1].pooled().view(-1, self.fields)
            logits = logits + (maps[:-1] * (form @ x)).sum(0)
        return logits.view(-1, embedding.shape[2]).sum(1)

    def flops(self, dim: int) -> int:
        """Count the operations of a row: products, two per weight that is left of a layer, and sums."""
        columns = len(self.layers)
        for layer in [self.layers[0], *self.layers[1:-1]]:
            columns += layer.weight.shape[1] * (1 + 2 * (layer.passed + 1))
        for layer in self.layers[1:][-1:]:
            columns += 2 * layer.weight.shape[1] * (self.fields + 1) // self.fields
        return dim * columns
