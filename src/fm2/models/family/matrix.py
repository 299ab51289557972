"""FmFM: every field matrix is full, D_i × D_j."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from fm2.models.family.interaction import Trainable
from fm2.models.initial import Seed, fill_normal, generator

# The outer products are wanted above the diagonal alone. So many strips of columns, each from its diagonal on, save a
# third of the operations and are still wide enough for the product to run at full speed.
STRIPS = 3


class FieldMatrixInteraction(Trainable):
    """The pair terms of an FmFM (equation 7): Σ v_i M[i,j] v_jᵀ over all pairs of fields, from embeddings side by side.

    Fields may differ in dimension. The first matrices are zero, or normal numbers of standard deviation ``scale``. One
    dense product with S per batch makes the terms, and one the gradient of its blocks. With :class:`FlatEmbedding` it
    is a part for any model:

    >>> from fm2.models import FieldMatrixInteraction, FlatEmbedding
    >>> embedding = FlatEmbedding([100, 50, 7], dims=[4, 8, 2], scale=0.05)
    >>> pairs = FieldMatrixInteraction(embedding.dims, scale=0.1)
    >>> pairs(embedding(torch.tensor([[3, 0, 6], [99, 1, 0]]))).shape
    torch.Size([2])

    ``weight`` is packed: field by field, the matrices of field i with all later fields side by side, as one matrix of
    D_i rows. It is laid out as the symmetric S anew for every batch, which costs what a few rows cost.
    """

    default_scale = 0.01
    _positions: Tensor

    def __init__(self, dims: Sequence[int], scale: float = 0.0, seed: Seed = 0) -> None:
        super().__init__(dims)
        self.scale = scale
        self.starts = list(accumulate(self.dims, initial=0))
        field = torch.arange(len(self.dims)).repeat_interleave(torch.tensor(self.dims))
        above = field[:, None] < field
        self.register_buffer("_positions", above.view(-1).nonzero()[:, 0], persistent=False)
        self.weight = nn.Parameter(torch.zeros(len(self._positions)))
        self.draw(generator(seed))

    def draw(self, source: torch.Generator | None) -> None:
        """Draw the first matrices."""
        if self.scale:
            fill_normal(self.weight, self.scale, source)

    def symmetric(self) -> Tensor:
        """Give S, D × D."""
        width = self.starts[-1]
        upper = self.weight.new_zeros(width * width)
        upper = upper.scatter_(0, self._positions, self.weight).view(width, width)
        return upper + upper.T

    def product(self, V: Tensor) -> Tensor:
        return V @ self.symmetric()

    def weight_gradient(self, g: Tensor, V: Tensor) -> Tensor:
        width = V.shape[1]
        weighted = V * g[:, None]
        outer = V.new_empty(width, width)
        strip = -(-width // STRIPS)
        for start in range(0, width, strip):
            outer[start : start + strip, start:] = V[:, start : start + strip].T @ weighted[:, start:]
        return outer.view(-1).index_select(0, self._positions)

    def field_matrix(self, i: int, j: int) -> Tensor:
        return self.entries(self.weight.detach(), i, j)

    def entries(self, values: Tensor, i: int, j: int) -> Tensor:
        begin = sum(dim * (self.starts[-1] - end) for dim, end in zip(self.dims[:i], self.starts[1:], strict=False))
        beside = self.starts[-1] - self.starts[i + 1]
        side_by_side = values[begin : begin + self.dims[i] * beside].view(self.dims[i], beside)
        column = self.starts[j] - self.starts[i + 1]
        return side_by_side[:, column : column + self.dims[j]]

    def add_identity(self, factor: float) -> None:
        for j in range(len(self.dims)):
            for i in range(j):
                self.field_matrix(i, j).diagonal().add_(factor)
