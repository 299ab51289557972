"""OPNN (Qu et al., "Product-based neural networks for user response prediction", 2016 and 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.deep.products import Bilinear


class OPNN(DeepModel):
    """A perceptron of the embeddings f and of their outer products (Qu et al., 2016 and 2018).

        l₁ = relu(W_z z + W_p p + b), with z = (f₁, ..., f_n)

    ``outer`` selects p:

    - ``sum``: p = Σ_i Σ_j f_i f_jᵀ = s sᵀ, K × K, where s = Σ f_i (2016);
    - ``pairs``: p = (f_iᵀ φ_ij f_j for i < j), with a K × K kernel φ_ij per pair (2018). These are the pair terms of an
      FmFM.

    There is no weight per feature.

    >>> model = OPNN([10, 20, 5], dims=4, hidden=[8])
    >>> model.n_parameters == 35 * 4 + ((3 * 4 + 4 * 4) * 8 + 8) + (8 + 1)
    True
    """

    wide = False

    def assemble(self, outer: str, **mlp: Any) -> None:
        n, k = len(self.dims), self.dims[0]
        self.kernels = Bilinear(self.dims, "interaction") if outer == "pairs" else None
        products = k * k if self.kernels is None else n * (n - 1) // 2
        self.mlp = MLP(self.embedding.width + products, noise=self.noise, **mlp)

    def products(self, embedding: Tensor) -> Tensor:
        """Return p, [rows, K²] or [rows, n (n - 1) / 2]."""
        if self.kernels is not None:
            return self.kernels(embedding).view(-1, self.kernels.width // self.dims[0], self.dims[0]).sum(2)
        total = self.by_field(embedding).sum(1)
        return (total[:, :, None] * total[:, None]).view(-1, self.dims[0] ** 2)

    def network(self, embedding: Tensor) -> Tensor:
        return self.mlp(torch.cat([embedding, self.products(embedding)], 1))

    def flops(self) -> int:
        """Return the number of operations per prediction: products and perceptron."""
        n, k = len(self.dims), self.dims[0]
        outer = n * k + k * k if self.kernels is None else self.kernels.flops() + self.kernels.width
        return outer + self.mlp.flops()
