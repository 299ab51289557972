"""Attention between fields, as AutoInt has it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.models.initial import randomise


class FieldAttention(nn.Module):
    """A layer in which every field of a row looks at all: [rows, fields, inputs] to [rows, fields, heads · dim].

    In a head, field m takes Σₖ αₘₖ W_V eₖ, where αₘ is the softmax over k of (W_Q eₘ)ᵀ(W_K eₖ). The heads stand side by
    side; what comes out is ReLU(heads + W_R eₘ).

    >>> FieldAttention(5, heads=2, dim=4)(torch.ones(3, 6, 5)).shape
    torch.Size([3, 6, 8])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, inputs: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads, self.dim, self.width = heads, dim, heads * dim
        self.weight = nn.Parameter(torch.zeros(4, self.width, inputs))  # W_Q, W_K, W_V, W_R

    def draw(self, source: torch.Generator) -> None:
        """Draw each of the four matrices as a linear layer's."""
        randomise(self.weight, math.sqrt(2 / sum(self.weight.shape[1:])), source)

    def attention(self, x: Tensor) -> Tensor:
        """Give αₘₖ, how much of field k field m takes, in every head: [rows, heads, fields, fields]."""
        query, key = (self._heads(x, matrix) for matrix in self.weight[:2])
        return torch.softmax(query @ key.transpose(-2, -1), -1)

    def forward(self, x: Tensor) -> Tensor:
        _, _, value, residual = self.weight
        heads = self.attention(x) @ self._heads(x, value)
        return torch.relu(heads.transpose(1, 2).flatten(2) + functional.linear(x, residual))

    def _heads(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Multiply by a matrix of all heads: [rows, heads, fields, dim]."""
        return functional.linear(x, matrix).view(-1, x.shape[1], self.heads, self.dim).transpose(1, 2)

    def flops(self, fields: int) -> int:
        """Count the operations of a row: four matrices, two products of fields with fields, and the residual's sum."""
        return fields * (2 * self.weight.numel() + 4 * fields * self.width + self.width)
