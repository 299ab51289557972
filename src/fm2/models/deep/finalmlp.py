"""FinalMLP (Mao et al., "FinalMLP: an enhanced two-stream MLP model for CTR prediction", 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, Layer, Noise
from fm2.models.embedding import FlatEmbedding
from fm2.models.initial import fill_normal


class Gate(Layer):
    """Feature gating: 2 sigmoid(MLP(x)) ⊙ e, where x holds the embeddings of ``fields`` and e those of all fields.

    Without fields, x is a learned vector, and all rows have the same gate.
    """

    _columns: Tensor

    def __init__(self, table: FlatEmbedding, fields: Sequence[int], hidden: Sequence[int]) -> None:
        super().__init__()
        columns = [torch.arange(table.starts[field], table.starts[field] + table.dims[field]) for field in fields]
        self.register_buffer("_columns", torch.cat(columns) if columns else torch.arange(0), persistent=False)
        inputs = len(self._columns) or table.dims[0]
        self.vector = None if columns else nn.Parameter(torch.zeros(1, inputs))
        self.mlp = MLP(inputs, hidden=hidden, noise=Noise(), outputs=table.width)

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial vector; with zeros, only the last bias of the perceptron would have a gradient."""
        if self.vector is not None:
            fill_normal(self.vector, 1.0, source)

    def forward(self, embedding: Tensor) -> Tensor:
        x = embedding.index_select(1, self._columns) if self.vector is None else self.vector
        gate = self.mlp(x).view(-1, embedding.shape[1])  # an MLP with one output returns [rows]
        return 2 * torch.sigmoid(gate) * embedding

    def flops(self) -> int:
        """Return the number of operations per row; a gate shared by all rows costs only the product with e."""
        assert self.mlp.last is not None
        return self.mlp.last.out_features + (0 if self.vector is not None else self.mlp.flops())


class Fusion(Layer):
    """Multi-head bilinear fusion of two streams: the sum over heads of w₁ᵀo₁ + w₂ᵀo₂ + o₁ᵀ W₃ o₂."""

    def __init__(self, first: int, second: int, heads: int) -> None:
        super().__init__()
        for width in (first, second):
            if width % heads:
                raise Fm2Error(f"finalmlp: the stream width {width} must be divisible by fusion_heads={heads}")
        self.first = nn.Parameter(torch.zeros(first))
        self.second = nn.Parameter(torch.zeros(second))
        self.weight = nn.Parameter(torch.zeros(heads, first // heads, second // heads))

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial vectors and matrices like those of linear layers."""
        for vector in (self.first, self.second):
            fill_normal(vector, math.sqrt(2 / (len(vector) + 1)), source)
        fill_normal(self.weight, math.sqrt(2 / sum(self.weight.shape[1:])), source)

    def forward(self, o1: Tensor, o2: Tensor) -> Tensor:
        heads = o1.view(-1, *self.weight.shape[:2])
        products = torch.einsum("rha,hab->rhb", heads, self.weight).flatten(1)
        return torch.sum(self.first * o1, 1) + torch.sum((products + self.second) * o2, 1)

    def flops(self) -> int:
        return 2 * self.weight.numel() + 2 * len(self.first) + 3 * len(self.second)


class FinalMLP(DeepModel):
    """Two perceptrons with feature gating, joined by bilinear fusion (Mao et al., 2023).

    - Gates: h₁ = 2 sigmoid(MLP(x₁)) ⊙ e and h₂ = 2 sigmoid(MLP(x₂)) ⊙ e, where x₁ and x₂ are the embeddings of the
      fields ``first_gate`` and ``second_gate`` (for example, user and item fields) or learned vectors. In the authors'
      code, the gates have embeddings of their own, and the vectors start at zero.
    - Streams: o₁ = MLP₁(h₁) and o₂ = MLP₂(h₂), with the hidden layers ``hidden`` and ``second_hidden``.
    - Fusion: b + Σ over heads of w₁ᵀo₁ + w₂ᵀo₂ + o₁ᵀ W₃ o₂, where each head has a part of o₁ and of o₂.

    There is no weight per feature.

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
        last_field = len(self.dims) - 1
        for field in (*first_gate, *second_gate):
            if field > last_field:
                raise Fm2Error(f"finalmlp: the fields of a gate must be between 0 and {last_field}, got {field}")
        width = self.embedding.width
        self.gates = nn.ModuleList(Gate(self.embedding, fields, gate_hidden) for fields in (first_gate, second_gate))
        self.streams = nn.ModuleList(
            MLP(width, hidden=layers, noise=self.noise, outputs=0, **mlp) for layers in (hidden, second_hidden)
        )
        self.fusion = Fusion((width, *hidden)[-1], (width, *second_hidden)[-1], fusion_heads)

    def network(self, embedding: Tensor) -> Tensor:
        return self.fusion(*(stream(gate(embedding)) for gate, stream in zip(self.gates, self.streams, strict=True)))
