"""Layers that many networks share. Their initial weights are drawn after the whole model has been assembled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.models.choices import Activation
from fm2.models.initial import fill_normal

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


class Linear(nn.Linear):
    """A linear layer with Glorot initialization: standard deviation √(2 / (inputs + outputs)), and a bias of zero.

    >>> Linear(20, 10).flops()
    400
    """

    def reset_parameters(self) -> None:
        """Set all parameters to zero instead of drawing from torch's global generator."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial matrix; the bias stays zero."""
        fill_normal(self.weight, math.sqrt(2 / (self.in_features + self.out_features)), source)

    def flops(self) -> int:
        """Return the number of operations per row: a multiplication and an addition per weight."""
        return 2 * self.in_features * self.out_features


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization that normalizes a batch of a single row by the running statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.num_batches_tracked = None  # needed only with momentum=None

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training and len(x) > 1,
            momentum=cast("float", self.momentum),
            eps=self.eps,
        )


class FieldMean(nn.Module):
    """The mean of each field's embedding, from concatenated embeddings [rows, D] to [rows, fields].

    ``membership`` [D, fields] is 1 where a column belongs to a field. A product with it replaces a loop over fields of
    different dimensions; a product with its transpose copies a number per field to all columns of the field.

    >>> FieldMean([1, 2])(torch.tensor([[5.0, 1.0, 3.0]])).tolist()
    [[5.0, 2.0]]
    """

    __call__: Callable[..., Tensor]
    membership: Tensor
    _dims: Tensor

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        membership = torch.eye(len(dims)).repeat_interleave(torch.tensor(dims), 0)
        self.register_buffer("membership", membership, persistent=False)
        self.register_buffer("_dims", membership.sum(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.membership / self._dims
