"""The multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

from fm2.models.choices import Activation
from fm2.models.deep.dropout import Dropout, Noise
from fm2.models.deep.layers import ACTIVATIONS, BatchNorm, Linear


class MLP(nn.Module):
    """Layers of ``hidden`` units, each: linear, batch normalization if asked for, activation, dropout.

    With ``outputs`` a last linear layer follows; one output is [rows], more are [rows, outputs]. With 0, what comes out
    is the last hidden layer, ``width`` wide.

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
        for place, layer in enumerate(self.layers):
            x = layer(x)
            x = x if self.norms is None else self.norms[place](x)
            x = self.dropout(self.activation(x))
        if self.last is None:
            return x
        x = self.last(x)
        return x.squeeze(1) if self.last.out_features == 1 else x

    def flops(self) -> int:
        """Count the operations of a row: two per weight, and two per unit that is normalized; activations are free."""
        linear = [layer for layer in self.modules() if isinstance(layer, Linear)]
        normalized = sum(norm.num_features for norm in self.modules() if isinstance(norm, BatchNorm))
        return sum(layer.flops() for layer in linear) + 2 * normalized
