"""The multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

from fm2.models.choices import Activation
from fm2.models.deep.dropout import Dropout, Noise
from fm2.models.deep.layers import ACTIVATIONS, BatchNorm, Linear


class MLP(nn.Module):
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

    __call__: Callable[..., Tensor]

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
