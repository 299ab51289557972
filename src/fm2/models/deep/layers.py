"""Layers that many networks are made of. Their first weights are drawn when the whole model is there."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    """Torch's linear layer; zero at first, then drawn with a standard deviation of √(2 / (inputs + outputs)).

    >>> Linear(20, 10).flops()
    400
    """

    def reset_parameters(self) -> None:
        """Leave zeros, rather than draw from torch's global source."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def draw(self, source: torch.Generator) -> None:
        """Draw the matrix; the bias begins at zero."""
        fill_normal(self.weight, math.sqrt(2 / (self.in_features + self.out_features)), source)

    def flops(self) -> int:
        """Count the operations of a row: a multiplication and an addition per weight."""
        return 2 * self.in_features * self.out_features


class BatchNorm(nn.BatchNorm1d):
    """Torch's batch normalization, but that a batch of a single row is normalized by what was seen before."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.num_batches_tracked = None  # only a momentum of None would need it

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
