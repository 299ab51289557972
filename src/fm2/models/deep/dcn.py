"""Deep & Cross (Wang et al., 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.initial import fill_normal


class VectorCross(nn.Module):
    """The cross network of DCN and the weights of its output, from embeddings [rows, D] to logits [rows].

    With xₗ₊₁ = x₀ xₗᵀwₗ + bₗ + xₗ, every xₗ is αₗ x₀ + βₗ, where βₗ = b₀ + … + bₗ₋₁ is the same for all rows and
    αₗ₊₁ = αₗ (1 + x₀ᵀwₗ) + βₗᵀwₗ is one number per row. So a single product, of x₀ with all w, is enough, the output's
    among them: its logit is α x₀ᵀw + βᵀw.

    >>> VectorCross(6, layers=3)(torch.ones(5, 6)).shape
    torch.Size([5])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers + 1, width))  # the last is the output's
        self.bias = nn.Parameter(torch.zeros(layers, width))

    def draw(self, source: torch.Generator) -> None:
        """Draw the vectors; biases begin at zero."""
        fill_normal(self.weight, math.sqrt(2 / (self.weight.shape[1] + 1)), source)

    def forward(self, x: Tensor) -> Tensor:
        fixed = (functional.pad(self.bias.cumsum(0), (0, 0, 1, 0)) * self.weight).sum(1)
        products = functional.linear(self.weight, x)
        last = len(self.bias)
        scale: Tensor | float = 1.0
        for layer in range(last):
            scale = scale * (1 + products[layer]) + fixed[layer]
        return scale * products[last] + fixed[last]

    def flops(self) -> int:
        """Count the operations of a row: the products, three per layer, and two for the output."""
        return 2 * self.weight.numel() + 3 * len(self.bias) + 2


class DCN(DeepModel):
    """A cross network beside a multi-layer perceptron: σ(wᵀ[x_L, h]), with xₗ₊₁ = x₀ xₗᵀwₗ + bₗ + xₗ.

    x₀ are the embeddings side by side, h is the perceptron's last layer. Each cross layer raises the degree of the
    polynomial in the embeddings by one. There is no weight per feature.

    >>> model = DCN([10, 20], dims=[4, 2], hidden=[8], cross_layers=3)
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (6 + 6) + (6 * 8 + 8) + (6 + 8 + 1)
    True
    """

    wide = False

    def assemble(self, cross_layers: int, **mlp: Any) -> None:
        self.cross = VectorCross(self.embedding.width, cross_layers)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.cross(embedding) + self.mlp(embedding)  # one linear unit of both outputs side by side

    def flops(self) -> int:
        """Count the floating point operations of one prediction: cross network and perceptron."""
        return self.cross.flops() + self.mlp.flops()
