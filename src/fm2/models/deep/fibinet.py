"""FiBiNET (Huang et al., "FiBiNET: combining feature importance and bilinear feature interaction", 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import Linear
from fm2.models.deep.mlp import MLP
from fm2.models.deep.products import Bilinear


class Excitation(Linear):
    """A layer whose first weights are positive: as its inputs are, a field with negative ones would be off for good."""

    def draw(self, source: torch.Generator) -> None:
        """Draw the matrix, without signs."""
        super().draw(source)
        self.weight.data.abs_()


class SqueezeExcitation(nn.Module):
    """Gives every field a weight, from all fields' means: a = relu(W₂ relu(W₁ z)) with z_i the mean of e_i.

    W₁ has a ``reduction``-th of the fields as units. ``forward`` gives a_i e_i of every field, side by side.
    """

    __call__: Callable[..., Tensor]
    _field: Tensor
    _sum: Tensor
    _dims: Tensor

    def __init__(self, dims: Sequence[int], reduction: int) -> None:
        super().__init__()
        n = len(dims)
        field = torch.arange(n).repeat_interleave(torch.tensor(dims))
        self.register_buffer("_field", field, persistent=False)
        self.register_buffer("_sum", nn.functional.one_hot(field, n).float(), persistent=False)
        self.register_buffer("_dims", torch.tensor(dims, dtype=torch.float32), persistent=False)
        self.squeeze = Linear(n, max(1, n // reduction), bias=False)
        self.excite = Excitation(max(1, n // reduction), n, bias=False)

    def weights(self, embedding: Tensor) -> Tensor:
        """Give the weights of the fields, [rows, n]."""
        means = embedding @ self._sum / self._dims
        return torch.relu(self.excite(torch.relu(self.squeeze(means))))

    def forward(self, embedding: Tensor) -> Tensor:
        return embedding * self.weights(embedding).index_select(1, self._field)

    def flops(self) -> int:
        """Count the operations of a row: the mean and the weighting are one per element each."""
        return self.squeeze.flops() + self.excite.flops() + 2 * len(self._field)


class FiBiNET(DeepModel):
    """A perceptron of bilinear products p_ij = (e_i W) ⊙ e_j of all pairs of fields, twice: of the embeddings e, and of
    a_i e_i, where a squeeze-and-excitation network finds a weight a_i of every field; and a linear part.

    ``bilinear`` says whose W is: ``all`` pairs', ``each`` field's, or each pair's (``interaction``), where fields may
    differ in dimension. Both sets of products have matrices of their own.

    >>> model = FiBiNET([10, 20, 5], dims=4, hidden=[8], reduction=3, bilinear="all")
    >>> model.n_parameters == 35 * 5 + (3 + 3) + 2 * 16 + (2 * 3 * 4 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, bilinear: str, reduction: int, **mlp: Any) -> None:
        self.weighting = SqueezeExcitation(self.dims, reduction)
        self.products = Bilinear(self.dims, bilinear)
        self.weighted_products = Bilinear(self.dims, bilinear)
        self.mlp = MLP(2 * self.products.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        weighted = self.weighting(embedding)
        return self.mlp(torch.cat([self.products(embedding), self.weighted_products(weighted)], 1))

    def flops(self) -> int:
        """Count the floating point operations of one prediction: weights, products twice, linear part, perceptron."""
        return self.linear_flops() + self.weighting.flops() + 2 * self.products.flops() + self.mlp.flops()
