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
    side; what comes out is ReLU(heads + W_R eₘ). All four matrices of all heads are one product.

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

    def _parts(self, x: Tensor) -> Tensor:
        """Give queries, keys, values and residuals: [4, rows, heads, fields, dim]."""
        made = functional.linear(x, self.weight.flatten(0, 1))
        return made.view(-1, x.shape[1], 4, self.heads, self.dim).permute(2, 0, 3, 1, 4)

    def attention(self, x: Tensor) -> Tensor:
        """Give αₘₖ, how much of field k field m takes, in every head: [rows, heads, fields, fields]."""
        query, key, _, _ = self._parts(x)
        return _weights(query, key)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value, residual = self._parts(x)
        return torch.relu(_weights(query, key) @ value + residual).transpose(1, 2).flatten(2)

    def flops(self, fields: int) -> int:
        """Count the operations of a row: four matrices, two products of fields with fields, and the residual's sum."""
        return fields * (2 * self.weight.numel() + 4 * fields * self.width + self.width)


def _weights(query: Tensor, key: Tensor) -> Tensor:
    return torch.softmax(query @ key.transpose(-2, -1), -1)
