"""xDeepFM (Lian et al., "xDeepFM: combining explicit and implicit feature interactions", 2018)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, Layer
from fm2.models.initial import fill_normal


class FeatureMaps(Layer):
    """A CIN layer, from ``inputs`` products to feature maps; ``passed`` maps go to the next layer, others are pooled.

    ``weight`` has a row per map, the passed maps first. The logit is linear in the pooled maps, so a single map can
    replace them: its weights are the sum of theirs, each multiplied by its ``output`` weight.
    """

    def __init__(self, inputs: int, maps: int, passed: int, pooled: int) -> None:
        super().__init__()
        self.passed = passed
        self.weight = nn.Parameter(torch.zeros(maps, inputs))
        self.output = nn.Parameter(torch.zeros(pooled))

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial weights like those of linear layers."""
        fill_normal(self.weight, math.sqrt(2 / sum(self.weight.shape)), source)
        fill_normal(self.output, math.sqrt(2 / (len(self.output) + 1)), source)

    def pooled(self) -> Tensor:
        """Return the weights of the single map that replaces all pooled maps, [inputs]."""
        return self.output @ self.weight[-len(self.output) :]

    def forward(self, products: Tensor) -> Tensor:
        """Return the passed maps and, last, the pooled map, from products [inputs, columns]."""
        return torch.cat([self.weight[: self.passed], self.pooled()[None]]) @ products


class CIN(Layer):
    """A compressed interaction network, from embeddings X⁰ [rows, fields, K] to logits [rows].

        Xᵏₕ = Σᵢⱼ Wᵏʰᵢⱼ (Xᵏ⁻¹ᵢ ∘ X⁰ⱼ)        logit = Σₖₕ wᵏₕ Σ_d Xᵏₕ_d

    Products are vector-wise: coordinates do not mix. Every coordinate of every row is a column, and a layer is one
    matrix product. Three shortcuts save work: the first layer has one weight for both orders of a pair of fields, the
    pooled maps of a layer are merged, and the last layer, which is only pooled, is a bilinear form of the maps before
    it.
    """

    pairs: Tensor

    def __init__(self, fields: int, dim: int, widths: Sequence[int], split: bool) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.triu_indices(fields, fields), persistent=False)
        layers = []
        inputs = self.pairs.shape[1]
        for index, maps in enumerate(widths):
            is_last = index == len(widths) - 1
            passed = 0 if is_last else maps // 2 if split else maps
            layers.append(FeatureMaps(inputs, maps, passed, maps - passed if split else maps))
            inputs = passed * fields
        self.fields = fields
        self.dim = dim
        self.layers = cast("Sequence[FeatureMaps]", nn.ModuleList(layers))

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

    def flops(self) -> int:
        """Return the number of operations per row: products, two per merged weight of a layer, and sums."""
        per_column = len(self.layers)
        for layer in [self.layers[0], *self.layers[1:-1]]:
            per_column += layer.weight.shape[1] * (1 + 2 * (layer.passed + 1))
        if len(self.layers) > 1:
            per_column += 2 * self.layers[-1].weight.shape[1] * (self.fields + 1) // self.fields
        return self.dim * per_column


class XDeepFM(DeepModel):
    """A compressed interaction network (CIN), a multi-layer perceptron and a linear part (Lian et al., 2018).

        logit = Σ_i w_i + CIN(X⁰) + MLP(X⁰), with maps Xᵏₕ = Σᵢⱼ Wᵏʰᵢⱼ (Xᵏ⁻¹ᵢ ∘ X⁰ⱼ) of order k + 1 in layer k

    ``cin`` holds the number of maps of each layer; they have no activation, which the paper found best. In the paper's
    equations, all maps of a layer go to the next layer and to the output. With ``cin_split``, as in the authors' code,
    the first half goes to the next layer and the second half to the output.

    >>> model = XDeepFM([10, 20], dims=4, hidden=[8], cin=[6, 4])
    >>> cin = 6 * 3 + 4 * (3 * 2) + (3 + 4)
    >>> model.n_parameters == 30 + 30 * 4 + cin + (8 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, cin: Sequence[int], cin_split: bool, **mlp: Any) -> None:
        if not cin:
            raise Fm2Error("xdeepfm: cin is empty; use widedeep for a model without CIN layers")
        self.cin = CIN(len(self.dims), self.dims[0], cin, cin_split)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.cin(self.by_field(embedding)) + self.mlp(embedding)
