"""Products of all pairs of fields, and the networks IPNN and OPNN.

Qu et al., "Product-based neural networks for user response prediction", 2016 and 2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, Layer
from fm2.models.initial import fill_normal


class InnerProducts(Layer):
    """The inner products ⟨f_i, f_j⟩ for i < j of vectors [rows, n, K]: [rows, ``width``], in the order of i, then j."""

    _above_diagonal: Tensor

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        self.n = n
        self.k = k
        self.width = n * (n - 1) // 2
        i, j = torch.triu_indices(n, n, 1)
        self.register_buffer("_above_diagonal", i * n + j, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return products.view(-1, self.n**2).index_select(1, self._above_diagonal)

    def flops(self) -> int:
        return 2 * self.k * self.width


class Bilinear(Layer):
    """The products (v_i W) ⊙ v_j for i < j, concatenated to [rows, ``width``], from concatenated embeddings.

    ``shared`` selects W: one for ``all`` pairs, one for ``each`` field i, or one per pair (``interaction``). Only with
    one per pair can fields have different dimensions; W is then D_i × D_j. The last field is never the first of a pair
    and has no matrix.

    A field is multiplied with all later fields in one matrix product: for 39 fields, these 38 products take a third of
    the time of one batched product of 741 small matrices.
    """

    def __init__(self, dims: Sequence[int], shared: str) -> None:
        super().__init__()
        if len(dims) < 2:
            raise Fm2Error(f"Bilinear: products of pairs require at least 2 fields, got {len(dims)}")
        self.dims = list(dims)
        self.shared = shared
        self.later = [sum(dims) - end for end in accumulate(dims)][:-1]  # total dimension of all fields after each
        self.width = sum(self.later)
        if shared == "interaction":
            shape: Sequence[int] = (sum(map(math.prod, zip(dims, self.later, strict=False))),)
        elif len(set(dims)) > 1:
            raise Fm2Error(
                f"Bilinear: the fields have dimensions {', '.join(map(str, dims))}; fields that share a matrix must "
                "have equal dimensions; one matrix per pair (interaction) allows different ones"
            )
        else:
            shape = (dims[0], dims[0]) if shared == "all" else (len(dims) - 1, dims[0], dims[0])
        self.weight = nn.Parameter(torch.zeros(shape))

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial matrices like those of linear layers."""
        fill_normal(self.weight, math.sqrt(len(self.dims) / sum(self.dims)), source)

    def matrices(self) -> Sequence[Tensor]:
        """Return the matrix of every field but the last; with one per pair, those of a field are concatenated."""
        if self.shared != "interaction":
            return self.weight.expand(len(self.later), -1, -1).unbind()
        shapes = list(zip(self.dims, self.later, strict=False))
        parts = torch.split(self.weight, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def forward(self, embedding: Tensor) -> Tensor:
        products = []
        for v, matrix, later in zip(torch.split(embedding, self.dims, 1), self.matrices(), self.later, strict=False):
            transformed = v @ matrix
            if self.shared != "interaction":
                transformed = transformed.repeat(1, later // v.shape[1])
            products.append(transformed * embedding[:, -later:])
        return torch.cat(products, 1)

    def flops(self) -> int:
        """Return the number of operations per row: two per element of every field's matrix, one per element of v_j."""
        return 2 * sum(matrix.numel() for matrix in self.matrices()) + self.width


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
        self.products = InnerProducts(len(self.dims), self.dims[0])
        self.mlp = MLP(self.embedding.width + self.products.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.mlp(torch.cat([embedding, self.products(self.by_field(embedding))], 1))


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
        return super().flops() + (n * k + k * k if self.kernels is None else self.kernels.width)
