"""Layers that many networks share. Their initial weights are drawn after the whole model has been assembled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
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


class Layer(nn.Module):
    """Base class of layers, which return one tensor."""

    __call__: Callable[..., Tensor]


def count_flops(module: nn.Module) -> int:
    """Add up the operations per row of all parts of a module that have a method ``flops``."""
    parts = [(part, getattr(part, "flops", None)) for part in module.children()]
    return sum(count_flops(part) if flops is None else flops() for part, flops in parts)


class Linear(nn.Linear):
    """A linear layer with Glorot initialization: standard deviation √(2 / (inputs + outputs)), and a bias of zero."""

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


class FieldMean(Layer):
    """The mean of each field's embedding, from concatenated embeddings [rows, D] to [rows, fields].

    ``membership`` [D, fields] is 1 where a column belongs to a field. A product with it replaces a loop over fields of
    different dimensions; a product with its transpose copies a number per field to all columns of the field.
    """

    membership: Tensor
    _dims: Tensor

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        membership = torch.eye(len(dims)).repeat_interleave(torch.tensor(dims), 0)
        self.register_buffer("membership", membership, persistent=False)
        self.register_buffer("_dims", membership.sum(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.membership / self._dims


CHANCES = 1 << 16


class Noise:
    """The random numbers of all dropout layers of a model.

    NumPy's generator restarts within microseconds and draws 16 random bits ten times as fast as torch draws a float.
    """

    def __init__(self) -> None:
        self.restart(0, 0)
        self._part: tuple[NDArray[np.uint32], int] | None = None

    def restart(self, seed: int, step: int) -> None:
        """Restart the random numbers for a training step."""
        self._random = np.random.Generator(np.random.SFC64([seed, step]))

    def take_part(self, rows: NDArray[np.uint32], total: int) -> None:
        """Draw the masks of ``total`` rows from now on, and return those of some ``rows``."""
        self._part = rows, total

    def keep_mask(self, shape: torch.Size, probability: float) -> Tensor:
        """Return a random mask of the elements to keep; the probability is rounded to 16 bits."""
        if self._part is None:
            drawn = self._random.integers(0, CHANCES, tuple(shape), dtype=np.uint16)
        else:
            rows, total = self._part
            each = shape[0] // len(rows)  # elements of the first dimension per row
            drawn = self._random.integers(0, CHANCES, (total, each, *shape[1:]), dtype=np.uint16)
            drawn = drawn[rows].reshape(shape)
        return torch.from_numpy(drawn < round(probability * CHANCES))


class Dropout(nn.Module):
    """Dropout: in training, set elements to zero with probability ``p`` and scale the others by 1 / (1 - ``p``)."""

    def __init__(self, p: float, noise: Noise) -> None:
        super().__init__()
        self.p = p
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        mask = self.noise.keep_mask(x.shape, 1 - self.p).to(x)
        return x * mask.mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class MLP(Layer):
    """A multi-layer perceptron. A hidden layer is linear, then batch normalization (optional), activation and dropout.

    ``hidden`` holds the widths of the hidden layers. A linear output layer follows: with one output, ``forward``
    returns [rows], with more [rows, outputs]. With ``outputs=0`` it returns the last hidden layer, [rows, ``width``].

    >>> import torch
    >>> mlp = MLP(6, hidden=(4, 3), noise=Noise())
    >>> mlp(torch.ones(5, 6)).shape, mlp.flops()
    (torch.Size([5]), 78)
    >>> MLP(6, hidden=(4, 3), noise=Noise(), outputs=0)(torch.ones(5, 6)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        inputs: int,
        *,
        hidden: Sequence[int],
        noise: Noise,
        activation: Activation = "relu",
        network_dropout: float = 0.0,
        batch_norm: bool = False,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        widths = pairwise([inputs, *hidden])
        self.layers = nn.ModuleList(Linear(before, after, bias=not batch_norm) for before, after in widths)
        self.norms = nn.ModuleList(BatchNorm(width) for width in hidden) if batch_norm else None
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(network_dropout, noise)
        self.width = hidden[-1] if hidden else inputs
        self.last = Linear(self.width, outputs) if outputs else None

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if self.norms is not None:
                x = self.norms[index](x)
            x = self.dropout(self.activation(x))
        if self.last is None:
            return x
        x = self.last(x)
        return x.squeeze(1) if self.last.out_features == 1 else x

    def flops(self) -> int:
        """Return the number of operations per row: two per weight and per normalized unit; activations are free."""
        linear = sum(layer.flops() for layer in self.modules() if isinstance(layer, Linear))
        normalized = sum(norm.num_features for norm in self.modules() if isinstance(norm, BatchNorm))
        return linear + 2 * normalized
