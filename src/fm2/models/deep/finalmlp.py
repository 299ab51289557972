"""FinalMLP (Mao et al., "FinalMLP: an enhanced two-stream MLP model for CTR prediction", 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.dropout import Noise
from fm2.models.deep.mlp import MLP
from fm2.models.embedding import FlatEmbedding
from fm2.models.initial import fill_normal


class Gate(nn.Module):
    """Weights every number of the embeddings e: 2 sigmoid(MLP(x)) ⊙ e, x the embeddings of some ``fields``.

    Without fields, x is a vector that is learned, and all rows have the same weights.
    """

    __call__: Callable[..., Tensor]
    _columns: Tensor

    def __init__(self, table: FlatEmbedding, fields: Sequence[int], hidden: Sequence[int]) -> None:
        super().__init__()
        spans = [torch.arange(table.starts[field], table.starts[field] + table.dims[field]) for field in fields]
        self.register_buffer("_columns", torch.cat(spans) if spans else torch.arange(0), persistent=False)
        inputs = len(self._columns) or table.dims[0]
        self.vector = None if spans else nn.Parameter(torch.zeros(1, inputs))
        self.mlp = MLP(inputs, hidden=hidden, noise=Noise(), outputs=table.width)

    def draw(self, source: torch.Generator) -> None:
        """Draw the vector: at zero, nothing of the perceptron but its last bias would have a gradient."""
        if self.vector is not None:
            fill_normal(self.vector, 1.0, source)

    def forward(self, embedding: Tensor) -> Tensor:
        seen = embedding.index_select(1, self._columns) if self.vector is None else self.vector
        gate = self.mlp(seen).view(-1, embedding.shape[1])  # a single output comes without its column
        return 2 * torch.sigmoid(gate) * embedding

    def flops(self) -> int:
        """Count the operations of a row; of weights that all rows share, the product with the embeddings alone."""
        assert self.mlp.last is not None
        return self.mlp.last.out_features + (0 if self.vector is not None else self.mlp.flops())


class Fusion(nn.Module):
    """Joins two streams: the sum over heads of w₁ᵀo₁ + w₂ᵀo₂ + o₁ᵀ W₃ o₂, o₁ and o₂ a head's parts of the streams.

    >>> Fusion(6, 4, heads=2)(torch.ones(5, 6), torch.ones(5, 4)).shape
    torch.Size([5])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, first: int, second: int, heads: int) -> None:
        super().__init__()
        for width in (first, second):
            if width % heads:
                raise Fm2Error(f"finalmlp: a stream's width {width} is not divided by its {heads} fusion_heads")
        self.heads = heads
        self.first, self.second = nn.Parameter(torch.zeros(first)), nn.Parameter(torch.zeros(second))
        self.weight = nn.Parameter(torch.zeros(heads, first // heads, second // heads))

    def draw(self, source: torch.Generator) -> None:
        """Draw vectors and matrices as linear layers'."""
        for vector in (self.first, self.second):
            fill_normal(vector, math.sqrt(2 / (len(vector) + 1)), source)
        fill_normal(self.weight, math.sqrt(2 / sum(self.weight.shape[1:])), source)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        parts = one.view(-1, *self.weight.shape[:2])
        moved = torch.einsum("rha,hab->rhb", parts, self.weight).flatten(1)
        return torch.sum(self.first * one, 1) + torch.sum((moved + self.second) * other, 1)

    def flops(self) -> int:
        """Count the operations of a row."""
        return 2 * self.weight.numel() + 2 * len(self.first) + 3 * len(self.second)


class FinalMLP(DeepModel):
    """Two perceptrons, each behind a gate of its own, and a bilinear form where they meet.

    - Gates: h₁ = 2 sigmoid(MLP(x₁)) ⊙ e and h₂ = 2 sigmoid(MLP(x₂)) ⊙ e; x₁ and x₂ are the embeddings of the fields
      ``first_gate`` and ``second_gate`` (say, of user and item), or vectors that are learned. In the authors' program
      gates look these fields up in tables of their own, and the vectors begin at zero.
    - Streams: o₁ = MLP₁(h₁) and o₂ = MLP₂(h₂), of the layers ``hidden`` and ``second_hidden``.
    - Fusion: b + Σ over heads of w₁ᵀo₁ + w₂ᵀo₂ + o₁ᵀ W₃ o₂, each with its part of o₁ and of o₂.

    >>> model = FinalMLP([10, 20], dims=[4, 2], hidden=[6], second_hidden=[4], gate_hidden=[], fusion_heads=2)
    >>> gates, streams, fusion = 2 * (4 + 4 * 6 + 6), 6 * 6 + 6 + 6 * 4 + 4, 6 + 4 + 2 * 3 * 2
    >>> model.n_parameters == 10 * 4 + 20 * 2 + gates + streams + fusion
    True
    """

    wide = False

    def assemble(
        self,
        hidden: Sequence[int],
        second_hidden: Sequence[int],
        gate_hidden: Sequence[int],
        first_gate: Sequence[int],
        second_gate: Sequence[int],
        fusion_heads: int,
        **mlp: Any,
    ) -> None:
        for field in (*first_gate, *second_gate):
            if field >= len(self.dims):
                raise Fm2Error(f"finalmlp: a gate sees field {field}; there are the fields 0 to {len(self.dims) - 1}")
        width = self.embedding.width
        self.gates = nn.ModuleList(Gate(self.embedding, fields, gate_hidden) for fields in (first_gate, second_gate))
        self.streams = nn.ModuleList(
            MLP(width, hidden=layers, noise=self.noise, outputs=0, **mlp) for layers in (hidden, second_hidden)
        )
        self.fusion = Fusion((width, *hidden)[-1], (width, *second_hidden)[-1], fusion_heads)

    def network(self, embedding: Tensor) -> Tensor:
        return self.fusion(*(stream(gate(embedding)) for gate, stream in zip(self.gates, self.streams, strict=True)))

    def flops(self) -> int:
        """Count the floating point operations of one prediction: gates, streams and fusion."""
        parts = [part for part in (*self.gates, *self.streams) if isinstance(part, Gate | MLP)]
        return sum(part.flops() for part in parts) + self.fusion.flops()
