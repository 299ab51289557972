"""IPNN (Qu et al., "Product-based neural networks for user response prediction", 2016 and 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.deep.products import InnerProducts


class IPNN(DeepModel):
    """A perceptron of the embeddings f and of the inner products of all their pairs (Qu et al., 2016 and 2018).

        l₁ = relu(W_z z + W_p p + b), with z = (f₁, ..., f_n) and p = (⟨f_i, f_j⟩ for i < j)

    W_p is a full matrix, as in the paper of 2018; the paper of 2016 factorizes it. There is no weight per feature.

    >>> model = IPNN([10, 20, 5], dims=4, hidden=[8])
    >>> model.n_parameters == 35 * 4 + ((3 * 4 + 3) * 8 + 8) + (8 + 1)
    True
    """

    wide = False

    def assemble(self, **mlp: Any) -> None:
        self.products = InnerProducts(len(self.dims))
        self.mlp = MLP(self.embedding.width + self.products.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.mlp(torch.cat([embedding, self.products(self.by_field(embedding))], 1))

    def flops(self) -> int:
        """Return the number of operations per prediction: products and perceptron."""
        return self.products.flops(self.dims[0]) + self.mlp.flops()
