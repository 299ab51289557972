"""FFM: a feature has a vector of its own for each of the other fields."""

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


class FFM(Model):
    """A field-aware factorization machine (the paper's equation 5), with a weight per feature.

    A row of the table ``embedding`` holds n − 1 vectors of ``dim`` floats, one for each of the other fields, in their
    order: a feature of field i finds its vector for field j at place j if j < i, at place j − 1 otherwise. The vectors
    are first normal numbers of standard deviation ``embedding_std``.

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
            raise Fm2Error(f"ffm: there are {len(field_sizes)} fields; it needs two at least")
        if dim < 1:
            raise Fm2Error(f"ffm: the dimension is {dim}; it must be at least 1")
        config = {"field_sizes": list(field_sizes), "dim": dim, "embedding_std": embedding_std}
        super().__init__(config)
        self.dim = dim
        self.embedding = FlatEmbedding(field_sizes, (len(field_sizes) - 1) * dim)
        self.linear = FlatEmbedding(field_sizes, 1)
        fill_normal(self.embedding.weight, embedding_std, generator(seed))

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits [rows] of ids [rows, fields]."""
        linear: Tensor = self.linear(ids).sum(1) + self.bias
        pairs: Tensor = _Pairs.apply(  # type: ignore[no-untyped-call]
            self.embedding.weight, self.embedding.begins(ids), self.embedding, self.dim
        )
        return linear + pairs


def _facing(begins: Tensor, field: int, dim: int) -> tuple[Tensor, Tensor]:
    """Number the vectors that a field and all later ones have for each other: two tensors [rows, later fields]."""
    places = torch.arange(field, begins.shape[1] - 1, device=begins.device)
    return begins[:, field, None] // dim + places, begins[:, field + 1 :] // dim + field


class _Pairs(torch.autograd.Function):
    """The pair terms, field by field; the vectors are gathered again for the gradient, for all of them are too many."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, begins: Tensor, table: FlatEmbedding, dim: int) -> Tensor:
        ctx.save_for_backward(weight, begins)
        ctx.table, ctx.dim = table, dim
        vectors = weight.view(-1, dim)
        terms = weight.new_zeros(len(begins))
        for field in range(begins.shape[1] - 1):
            mine, theirs = _facing(begins, field, dim)
            terms += (vectors[mine] * vectors[theirs]).sum((1, 2))
        return terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        weight, begins = ctx.saved_tensors
        vectors = weight.view(-1, ctx.dim)
        gradient = ctx.table.gradient(begins)
        for field in range(begins.shape[1] - 1):
            vectors_of = _facing(begins, field, ctx.dim)
            slots_of = _facing(gradient.begins, field, ctx.dim)
            for slots, partners in zip(slots_of, reversed(vectors_of), strict=True):
                gradient.add(slots, (vectors[partners] * g[:, None, None]).view(-1, ctx.dim))
        return gradient.tensor(), None, None, None
