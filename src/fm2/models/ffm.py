"""FFM: each feature has one vector for every other field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error
from fm2.models.base import Model
from fm2.models.embedding import FlatEmbedding
from fm2.models.initial import Seed, fill_normal, generator
from fm2.models.rows import Rows, TensorRows


class FFM(Model):
    """A field-aware factorization machine (equation 5 of the paper) with a weight per feature.

    A row of the table ``embedding`` holds n − 1 vectors of ``dim`` floats, one for each other field in order. In field
    i, the vector for field j is at index j if j < i, and at index j − 1 otherwise. The initial vectors are normally
    distributed with standard deviation ``embedding_std``. The vectors of a multi-valued field are the weighted sums of
    its values' vectors.

    >>> model = FFM([10, 20, 30], dim=4)
    >>> model.n_parameters == 60 + 60 * 2 * 4
    True
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1])
    """

    def __init__(
        self, field_sizes: Sequence[int], dim: int = 4, *, embedding_std: float = 0.01, seed: Seed = 0
    ) -> None:
        if len(field_sizes) < 2:
            raise Fm2Error(f"ffm: expected at least 2 fields, got {len(field_sizes)}")
        if dim < 1:
            raise Fm2Error(f"ffm: dim must be at least 1, got {dim}")
        super().__init__({"field_sizes": list(field_sizes), "dim": dim, "embedding_std": embedding_std})
        self.dim = dim
        self.embedding = FlatEmbedding(field_sizes, (len(field_sizes) - 1) * dim)
        self.linear = FlatEmbedding(field_sizes, 1)
        fill_normal(self.embedding.weight, embedding_std, generator(seed))

    def forward(self, rows: Rows) -> Tensor:
        linear: Tensor = self.linear(rows).sum(1) + self.bias
        if not isinstance(rows, Tensor):
            return linear + self._pooled_pairs(rows)
        pairs: Tensor = _Pairs.apply(  # type: ignore[no-untyped-call]
            self.embedding.weight, self.embedding.begins(rows), self.embedding, self.dim
        )
        return linear + pairs

    def _pooled_pairs(self, rows: TensorRows) -> Tensor:
        """Return the pair terms of rows with multi-valued fields, whose vectors are weighted sums of their values'."""
        n = len(self.field_sizes)
        vectors = self.embedding(rows).view(len(rows), n, n - 1, self.dim)
        terms = [(vectors[:, i, i:] * vectors[:, i + 1 :, i]).sum((1, 2)) for i in range(n - 1)]
        return torch.stack(terms).sum(0)


def _vector_indices(begins: Tensor, field: int, dim: int) -> tuple[Tensor, Tensor]:
    """Return the indices of a field's vectors for all later fields, and of theirs for it: both [rows, later fields]."""
    later_fields = torch.arange(field, begins.shape[1] - 1, device=begins.device)
    return begins[:, field, None] // dim + later_fields, begins[:, field + 1 :] // dim + field


class _Pairs(torch.autograd.Function):
    """Pair terms, field by field. The backward pass gathers the vectors again: all of them take too much memory."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, begins: Tensor, table: FlatEmbedding, dim: int) -> Tensor:
        ctx.save_for_backward(weight, begins)
        ctx.table, ctx.dim = table, dim
        vectors = weight.view(-1, dim)
        terms = weight.new_zeros(len(begins))
        for field in range(begins.shape[1] - 1):
            first, second = _vector_indices(begins, field, dim)
            terms += (vectors[first] * vectors[second]).sum((1, 2))
        return terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        weight, begins = ctx.saved_tensors
        vectors = weight.view(-1, ctx.dim)
        gradient = ctx.table.gradient(begins)
        for field in range(begins.shape[1] - 1):
            pair = _vector_indices(begins, field, ctx.dim)
            gradient_pair = _vector_indices(gradient.begins, field, ctx.dim)
            for units, partners in zip(gradient_pair, reversed(pair), strict=True):
                gradient.add(units, (vectors[partners] * g[:, None, None]).view(-1, ctx.dim))
        return gradient.tensor(), None, None, None
