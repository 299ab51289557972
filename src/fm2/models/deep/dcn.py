"""DCN (Wang et al., "Deep & Cross network for ad click predictions", 2017)."""

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
    """The cross network of DCN with its output weights, from embeddings x₀ [rows, D] to logits [rows].

    With xₗ₊₁ = x₀ xₗᵀwₗ + bₗ + xₗ, every xₗ equals αₗ x₀ + βₗ, where βₗ = b₀ + … + bₗ₋₁ does not depend on the row, and
    αₗ₊₁ = αₗ (1 + x₀ᵀwₗ) + βₗᵀwₗ is one number per row. A single product of x₀ with all w, including the output's, is
    therefore enough; the logit is α x₀ᵀw + βᵀw.

    >>> VectorCross(6, layers=3)(torch.ones(5, 6)).shape
    torch.Size([5])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers + 1, width))  # the output weights are last
        self.bias = nn.Parameter(torch.zeros(layers, width))

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial weight vectors; the biases stay zero."""
        fill_normal(self.weight, math.sqrt(2 / (self.weight.shape[1] + 1)), source)

    def forward(self, x: Tensor) -> Tensor:
        beta_products = (functional.pad(self.bias.cumsum(0), (0, 0, 1, 0)) * self.weight).sum(1)
        x_products = functional.linear(self.weight, x)
        n_layers = len(self.bias)
        alpha: Tensor | float = 1.0
        for layer in range(n_layers):
            alpha = alpha * (1 + x_products[layer]) + beta_products[layer]
        return alpha * x_products[n_layers] + beta_products[n_layers]

    def flops(self) -> int:
        """Return the number of operations per row: the products, three per layer, and two for the output."""
        return 2 * self.weight.numel() + 3 * len(self.bias) + 2


class DCN(DeepModel):
    """A cross network in parallel with a multi-layer perceptron (Wang et al., 2017).

        logit = wᵀ[x_L, h] + b, with xₗ₊₁ = x₀ xₗᵀwₗ + bₗ + xₗ

    x₀ is the concatenation of the embeddings, and h the last hidden layer of the perceptron. Each cross layer raises
    the degree of the polynomial in the embeddings by one. There is no weight per feature.

    >>> model = DCN([10, 20], dims=[4, 2], hidden=[8], cross_layers=3)
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (6 + 6) + (6 * 8 + 8) + (6 + 8 + 1)
    True
    """

    wide = False

    def assemble(self, cross_layers: int, **mlp: Any) -> None:
        self.cross = VectorCross(self.embedding.width, cross_layers)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.cross(embedding) + self.mlp(embedding)  # equals one linear unit of both concatenated outputs

    def flops(self) -> int:
        """Return the number of operations per prediction: cross network and perceptron."""
        return self.cross.flops() + self.mlp.flops()
