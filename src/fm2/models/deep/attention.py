"""Multi-head self-attention between the fields of a row, for AutoInt and Fi-GNN."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from fm2 import _native
from fm2.models.deep.layers import Layer
from fm2.models.initial import fill_normal


class FieldAttention(Layer):
    """A self-attention layer with a residual, from [rows, fields, inputs] to [rows, fields, heads · dim].

    In each head, the output of field m is Σₖ αₘₖ W_V eₖ, with αₘ = softmaxₖ(``scale`` · (W_Q eₘ)ᵀ(W_K eₖ)). The layer
    returns ReLU(concatenated heads + W_R eₘ).
    """

    def __init__(self, fields: int, inputs: int, heads: int, dim: int, scale: float = 1.0) -> None:
        super().__init__()
        self.threads = 1  # of the native kernel that trains on the CPU
        self.fields = fields
        self.heads = heads
        self.dim = dim
        self.width = heads * dim
        self.scale = scale
        self.weight = nn.Parameter(torch.zeros(4, self.width, inputs))  # W_Q, W_K, W_V, W_R

    def draw(self, source: torch.Generator) -> None:
        """Draw each of the four initial matrices like that of a linear layer."""
        fill_normal(self.weight, math.sqrt(2 / sum(self.weight.shape[1:])), source)

    def attention(self, x: Tensor) -> Tensor:
        """Return the attention weights αₘₖ of every head, [rows, heads, fields, fields]."""
        query, key = (self._project(x, matrix) for matrix in self._scaled_matrices()[:2])
        return torch.softmax(query @ key.transpose(-2, -1), -1)

    def forward(self, x: Tensor) -> Tensor:
        matrices = self._scaled_matrices()
        if torch.is_grad_enabled() and x.dtype == torch.float32 and x.device.type == "cpu":
            out: Tensor = _Attention.apply(x, matrices, self.heads, self.threads)  # type: ignore[no-untyped-call]
            return out
        _, _, value, residual = matrices
        heads = self.attention(x) @ self._project(x, value)
        return torch.relu(heads.transpose(1, 2).flatten(2) + functional.linear(x, residual))

    def _scaled_matrices(self) -> Tensor:
        """Return the four matrices, with the scale included in W_Q."""
        return torch.cat([self.scale * self.weight[:1], self.weight[1:]])

    def _project(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Apply a matrix of all heads: [rows, heads, fields, dim]."""
        return functional.linear(x, matrix).view(-1, x.shape[1], self.heads, self.dim).transpose(1, 2)

    def flops(self) -> int:
        """Return the number of operations per row: four projections, the two attention products, and the residual."""
        return self.fields * (2 * self.weight.numel() + 4 * self.fields * self.width + self.width)


class _Attention(torch.autograd.Function):
    """The native layer, which keeps a row in the L1 cache; torch would write α of all rows to memory."""

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
        x_grad = torch.empty_like(x)
        weight_grad = torch.empty_like(weight)
        saved = (weight.numpy(), x.numpy(), ctx.heads, out.numpy(), g.contiguous().numpy())
        _native.follow_attention(*saved, x_grad.numpy(), weight_grad.numpy(), ctx.threads)
        return x_grad, weight_grad, None, None
