"""Attention between fields, as AutoInt and Fi-GNN have it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fm2 import _native
from fm2.models.initial import fill_normal


class FieldAttention(nn.Module):
    """A layer in which every field of a row looks at all: [rows, fields, inputs] to [rows, fields, heads · dim].

    In a head, field m takes Σₖ αₘₖ W_V eₖ, where αₘ is the softmax over k of ``scale`` · (W_Q eₘ)ᵀ(W_K eₖ). The heads
    stand side by side; what comes out is ReLU(heads + W_R eₘ).

    >>> FieldAttention(5, heads=2, dim=4)(torch.ones(3, 6, 5)).shape
    torch.Size([3, 6, 8])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, inputs: int, heads: int, dim: int, scale: float = 1.0) -> None:
        super().__init__()
        self.threads = 1  # of native code, by which it learns on the CPU
        self.heads, self.dim, self.width, self.scale = heads, dim, heads * dim, scale
        self.weight = nn.Parameter(torch.zeros(4, self.width, inputs))  # W_Q, W_K, W_V, W_R

    def draw(self, source: torch.Generator) -> None:
        """Draw each of the four matrices as a linear layer's."""
        fill_normal(self.weight, math.sqrt(2 / sum(self.weight.shape[1:])), source)

    def attention(self, x: Tensor) -> Tensor:
        """Give αₘₖ, how much of field k field m takes, in every head: [rows, heads, fields, fields]."""
        query, key = (self._heads(x, matrix) for matrix in self._matrices()[:2])
        return torch.softmax(query @ key.transpose(-2, -1), -1)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.dtype == torch.float32 and x.device.type == "cpu":
            out: Tensor = _Attention.apply(x, self._matrices(), self.heads, self.threads)  # type: ignore[no-untyped-call]
            return out
        _, _, value, residual = self._matrices()
        heads = self.attention(x) @ self._heads(x, value)
        return torch.relu(heads.transpose(1, 2).flatten(2) + functional.linear(x, residual))

    def _matrices(self) -> Tensor:
        """Give the four matrices, the scale of the products in the first."""
        return torch.cat([self.scale * self.weight[:1], self.weight[1:]])

    def _heads(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Multiply by a matrix of all heads: [rows, heads, fields, dim]."""
        return functional.linear(x, matrix).view(-1, x.shape[1], self.heads, self.dim).transpose(1, 2)

    def flops(self, fields: int) -> int:
        """Count the operations of a row: four matrices, two products of fields with fields, and the residual's sum."""
        return fields * (2 * self.weight.numel() + 4 * fields * self.width + self.width)


class _Attention(torch.autograd.Function):
    """A layer row by row, all of a row in the nearest cache; torch's way writes α of all rows to memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, heads: int, threads: int) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(*x.shape[:2], weight.shape[1])
        _native.attend(weight.detach().numpy(), x.detach().numpy(), heads, out.numpy(), threads)
        ctx.save_for_backward(x, weight, out)
        ctx.heads, ctx.threads = heads, threads
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, out = (tensor.detach() for tensor in ctx.saved_tensors)
        slopes = torch.empty_like(x), torch.empty_like(weight)
        given = (weight.numpy(), x.numpy(), ctx.heads, out.numpy(), g.contiguous().numpy())
        _native.follow_attention(*given, slopes[0].numpy(), slopes[1].numpy(), ctx.threads)
        return *slopes, None, None
