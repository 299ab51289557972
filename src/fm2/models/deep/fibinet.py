"""FiBiNET (Huang et al., "FiBiNET: combining feature importance and bilinear feature interaction", 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, FieldMean, Layer, Linear
from fm2.models.deep.products import Bilinear


class Excitation(Linear):
    """A linear layer with positive initial weights.

    Its inputs are not negative, so a field with only negative weights would have an output of zero and no gradient.
    """

    def draw(self, source: torch.Generator) -> None:
        """Draw the magnitudes of the initial weights."""
        super().draw(source)
        self.weight.data.abs_()


class SqueezeExcitation(Layer):
    """Multiply each field's embedding by its importance: a_i e_i, with a = relu(W₂ relu(W₁ z)) and z_i = mean(e_i).

    ``reduction`` is the ratio of the number of fields to the number of hidden units.
    """

    _field: Tensor

    def __init__(self, dims: Sequence[int], reduction: int) -> None:
        super().__init__()
        n = len(dims)
        self.mean = FieldMean(dims)
        self.register_buffer("_field", self.mean.membership.argmax(1), persistent=False)
        self.squeeze = Linear(n, max(1, n // reduction), bias=False)
        self.excite = Excitation(max(1, n // reduction), n, bias=False)

    def weights(self, embedding: Tensor) -> Tensor:
        """Return the importance of each field, [rows, n]."""
        return torch.relu(self.excite(torch.relu(self.squeeze(self.mean(embedding)))))

    def forward(self, embedding: Tensor) -> Tensor:
        return embedding * self.weights(embedding).index_select(1, self._field)

    def flops(self) -> int:
        """Return the number of operations per row: both layers, and two per element for the mean and the product."""
        return self.squeeze.flops() + self.excite.flops() + 2 * len(self._field)


class FiBiNET(DeepModel):
    """A perceptron of bilinear interactions of the embeddings and of the reweighted embeddings (Huang et al., 2019).

        logit = b + Σ_i w_i + MLP([p, q]), with p_ij = (e_i W) ⊙ e_j and q_ij = (a_i e_i W') ⊙ (a_j e_j) for i < j

    A squeeze-and-excitation network computes the importance a_i of each field. ``bilinear`` selects the matrices: one
    for ``all`` pairs, one for ``each`` field i, or one per pair (``interaction``), where fields can have different
    dimensions. p and q have separate matrices.

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
