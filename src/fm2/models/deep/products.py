"""Inner products of all pairs of vectors, and products of all pairs of fields through matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.initial import fill_normal


class InnerProducts(nn.Module):
    """All ⟨f_i, f_j⟩ with i < j of vectors [rows, n, K], as [rows, ``width``], pairs in the order of the first.

    >>> InnerProducts(3)(torch.tensor([[[1.0, 0], [2, 1], [3, 5]]])).tolist()
    [[2.0, 3.0, 11.0]]
    """

    __call__: Callable[..., Tensor]
    _above: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.width = n, n * (n - 1) // 2
        i, j = torch.triu_indices(n, n, 1)
        self.register_buffer("_above", i * n + j, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return products.view(-1, self.n**2).index_select(1, self._above)

    def flops(self, k: int) -> int:
        """Count the operations of a row."""
        return 2 * k * self.width


class Bilinear(nn.Module):
    """All (v_i W) ⊙ v_j with i < j, side by side, from embeddings side by side: [rows, ``width``].

    ``shared`` says whose W is: one for ``all`` pairs, one for ``each`` field i, or one for each pair, which is called
    ``interaction``; only there may fields differ in dimension, W being D_i × D_j. The last field is never the first of
    a pair and has no matrix of its own.

    A field meets all later ones in one product of matrices: 38 products for 39 fields take a third of the time that
    one batch of 741 small ones takes.

    >>> [Bilinear([4] * 3, shared).weight.numel() for shared in ("all", "each", "interaction")]
    [16, 32, 48]
    >>> Bilinear([4, 2, 3], "interaction")(torch.ones(5, 9)).shape
    torch.Size([5, 8])
    """

    __call__: Callable[..., Tensor]

    def __init__(self, dims: Sequence[int], shared: str) -> None:
        super().__init__()
        if len(dims) < 2:
            raise Fm2Error("model: pairs of fields need two fields; there is one")
        self.dims, self.shared = list(dims), shared
        self.later = [sum(dims) - end for end in accumulate(dims)][:-1]  # how wide all fields after each are
        self.width = sum(self.later)
        if shared == "interaction":
            sizes: Sequence[int] = (sum(map(math.prod, zip(dims, self.later, strict=False))),)
        elif len(set(dims)) > 1:
            raise Fm2Error(
                f"model: the fields' dimensions are {', '.join(map(str, dims))}; they have to be equal where fields "
                "share a matrix; one per pair of fields (interaction) lets them differ"
            )
        else:
            sizes = (dims[0], dims[0]) if shared == "all" else (len(dims) - 1, dims[0], dims[0])
        self.weight = nn.Parameter(torch.zeros(sizes))

    def draw(self, source: torch.Generator) -> None:
        """Draw the matrices as those of a linear layer."""
        fill_normal(self.weight, math.sqrt(len(self.dims) / sum(self.dims)), source)

    def matrices(self) -> Sequence[Tensor]:
        """Give the matrices of every field but the last; where each pair has one, those of a field side by side."""
        if self.shared != "interaction":
            return self.weight.expand(len(self.later), -1, -1).unbind()
        sides = list(zip(self.dims, self.later, strict=False))
        return [
            part.view(side)
            for part, side in zip(torch.split(self.weight, [a * b for a, b in sides]), sides, strict=True)
        ]

    def forward(self, embedding: Tensor) -> Tensor:
        products = []
        for v, w, later in zip(torch.split(embedding, self.dims, 1), self.matrices(), self.later, strict=False):
            moved = v @ w
            if self.shared != "interaction":
                moved = moved.repeat(1, later // v.shape[1])
            products.append(moved * embedding[:, -later:])
        return torch.cat(products, 1)

    def flops(self) -> int:
        """Count the operations of a row: two per weight of every field's matrices, one per element of v_j."""
        return 2 * sum(matrix.numel() for matrix in self.matrices()) + self.width
