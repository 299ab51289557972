"""Cross layers with matrices, and their combination with a perceptron, for DCN-V2 and GDCN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import Linear
from fm2.models.deep.mlp import MLP
from fm2.models.initial import fill_normal


class Cross(nn.Module):
    """A cross layer of DCN-V2: x₀ ⊙ (W x + b) + x, from x₀ and x [rows, width].

    >>> Cross(6)(torch.ones(5, 6), torch.ones(5, 6)).shape
    torch.Size([5, 6])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix = Linear(width, width)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        return torch.addcmul(x, x0, self.matrix(x))

    def flops(self) -> int:
        """Return the number of operations per row: those of the matrix, and two per element of x."""
        return self.matrix.flops() + 2 * self.matrix.out_features


class GatedCross(Cross):
    """A cross layer of GDCN: x₀ ⊙ (W x + b) ⊙ σ(W_g x) + x.

    >>> GatedCross(6).flops() == 2 * (2 * 6 * 6) + 3 * 6
    True
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.gate = Linear(width, width, bias=False)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        return torch.addcmul(x, x0, self.matrix(x) * torch.sigmoid(self.gate(x)))

    def flops(self) -> int:
        """Return the number of operations per row: those of both matrices, and three per element of x."""
        return super().flops() + self.gate.flops() + self.gate.out_features


class CrossMixture(nn.Module):
    """A mixture of low-rank experts as in DCN-V2: Σᵢ Gᵢ(x) (x₀ ⊙ (Uᵢ g(Cᵢ g(Vᵢᵀ x)) + b)) + x, where g is tanh.

    The gates G are the softmax of a linear layer; a single expert has no gate. Since the gates sum to one, the products
    with all Uᵢ are a single product of the concatenated Uᵢ and the concatenated gated vectors.

    >>> CrossMixture(6, rank=2, experts=3)(torch.ones(5, 6), torch.ones(5, 6)).shape
    torch.Size([5, 6])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, rank: int, experts: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.zeros(experts * rank, width))
        self.core = nn.Parameter(torch.zeros(experts, rank, rank))
        self.up = nn.Parameter(torch.zeros(experts * rank, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.gate = Linear(width, experts, bias=False) if experts > 1 else None

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial matrices of each expert like those of linear layers."""
        _, rank, _ = self.core.shape
        for matrices, inputs in ((self.down, len(self.bias)), (self.core, rank), (self.up, len(self.bias))):
            fill_normal(matrices, math.sqrt(2 / (inputs + rank)), source)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        experts, rank, _ = self.core.shape
        low = torch.tanh(x @ self.down.t()).view(-1, experts, rank).transpose(0, 1)
        low = torch.tanh(low @ self.core.transpose(1, 2)).transpose(0, 1)
        if self.gate is not None:
            low = low * torch.softmax(self.gate(x), 1)[:, :, None]
        return torch.addcmul(x, x0, torch.addmm(self.bias, low.flatten(1), self.up))

    def flops(self) -> int:
        """Return the number of operations per row: two per weight, one per gated element, two per element of x."""
        gates = 0 if self.gate is None else self.gate.flops() + len(self.down)
        weights = self.down.numel() + self.core.numel() + self.up.numel()
        return 2 * weights + gates + 2 * len(self.bias)


class CrossModel(DeepModel):
    """Base class of cross networks; the perceptron reads x_L (``stacked``) or x₀ (``parallel``)."""

    wide = False

    def assemble_cross(self, layers: Iterable[Cross | CrossMixture], structure: str, **mlp: Any) -> None:
        """Create the perceptron and, in the parallel structure, the output weights of the cross layers."""
        self.layers = cast("Iterable[Cross | CrossMixture]", nn.ModuleList(layers))
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)
        self.last = Linear(self.embedding.width, 1, bias=False) if structure == "parallel" else None

    def network(self, embedding: Tensor) -> Tensor:
        x = embedding
        for layer in self.layers:
            x = layer(embedding, x)
        if self.last is None:
            return self.mlp(x)
        logits: Tensor = self.last(x).squeeze(1)
        return logits + self.mlp(embedding)  # equals one linear unit of both concatenated outputs

    def flops(self) -> int:
        """Return the number of operations per prediction: cross layers, perceptron and output."""
        crosses = sum(layer.flops() for layer in self.layers)
        return crosses + self.mlp.flops() + (0 if self.last is None else self.last.flops())
