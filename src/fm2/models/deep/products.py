"""Products of all pairs of fields: inner products, and products through matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.initial import fill_normal


class InnerProducts(nn.Module):
    """The inner products ⟨f_i, f_j⟩ for i < j of vectors [rows, n, K]: [rows, ``width``], in the order of i, then j.

    >>> InnerProducts(3)(torch.tensor([[[1.0, 0], [2, 1], [3, 5]]])).tolist()
    [[2.0, 3.0, 11.0]]
    """

    __call__: Callable[..., Tensor]
    _above_diagonal: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.width = n * (n - 1) // 2
        i, j = torch.triu_indices(n, n, 1)
        self.register_buffer("_above_diagonal", i * n + j, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return products.view(-1, self.n**2).index_select(1, self._above_diagonal)

    def flops(self, k: int) -> int:
        """Return the number of operations per row."""
        return 2 * k * self.width


class Bilinear(nn.Module):
    """The products (v_i W) ⊙ v_j for i < j, concatenated to [rows, ``width``], from concatenated embeddings.

    ``shared`` selects W: one for ``all`` pairs, one for ``each`` field i, or one per pair (``interaction``). Only with
    one per pair can fields have different dimensions; W is then D_i × D_j. The last field is never the first of a pair
    and has no matrix.

    A field is multiplied with all later fields in one matrix product: for 39 fields, these 38 products take a third of
    the time of one batched product of 741 small matrices.

    >>> [Bilinear([4] * 3, shared).weight.numel() for shared in ("all", "each", "interaction")]
    [16, 32, 48]
    >>> Bilinear([4, 2, 3], "interaction")(torch.ones(5, 9)).shape
    torch.Size([5, 8])
    """

    __call__: Callable[..., Tensor]

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
