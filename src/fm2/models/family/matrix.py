"""The interaction of FmFM: every field matrix is a full D_i × D_j matrix."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations

import torch
from torch import Tensor, nn

from fm2.models.choices import MatrixForm
from fm2.models.family.interaction import Trainable
from fm2.models.initial import Seed, fill_normal, generator

# Only the outer products above the diagonal are needed. Computing them in this many strips of columns, each from its
# diagonal on, saves a third of the operations, and the strips are still wide enough for full speed.
STRIPS = 3


class FieldMatrixInteraction(Trainable):
    """The pair terms of FmFM (equation 7): Σ v_i M[i,j] v_jᵀ over all pairs of fields, from concatenated embeddings.

    Fields can have different dimensions. The initial matrices are zero, or normally distributed with standard deviation
    ``scale``. A batch takes one dense product with S for the terms and one for the gradient of its blocks. With
    :class:`FlatEmbedding`, it is a building block for any model:

    >>> from fm2.models import FieldMatrixInteraction, FlatEmbedding
    >>> embedding = FlatEmbedding([100, 50, 7], dims=[4, 8, 2], scale=0.05)
    >>> pairs = FieldMatrixInteraction(embedding.dims, scale=0.1)
    >>> pairs(embedding(torch.tensor([[3, 0, 6], [99, 1, 0]]))).shape
    torch.Size([2])

    ``weight`` is packed field by field: the matrices of field i with all later fields, concatenated to one matrix with
    D_i rows. Each batch expands it to the symmetric S, at the cost of a few rows.
    """

    kind = "matrix"
    default_scale = 0.01
    _positions: Tensor
    _diagonal: Tensor | None  # the positions of the diagonals in ``weight``, if nothing else may change
    _pairs: Tensor | None  # the pair that each of them belongs to, if those of a pair have to be equal

    def __init__(self, dims: Sequence[int], scale: float = 0.0, seed: Seed = 0) -> None:
        super().__init__(dims)
        self.scale = scale
        self.starts = list(accumulate(self.dims, initial=0))
        widths = (dim * (self.starts[-1] - end) for dim, end in zip(self.dims, self.starts[1:], strict=True))
        self._begins = list(accumulate(widths, initial=0))  # of each field's matrices in ``weight``
        field = torch.arange(len(self.dims)).repeat_interleave(torch.tensor(self.dims))
        above_diagonal = field[:, None] < field
        self.register_buffer("_positions", above_diagonal.view(-1).nonzero()[:, 0], persistent=False)
        self.weight = nn.Parameter(torch.zeros(len(self._positions)))
        self.register_buffer("_diagonal", None, persistent=False)
        self.register_buffer("_pairs", None, persistent=False)
        self.draw(generator(seed))

    def draw(self, source: torch.Generator | None) -> None:
        if self.scale:
            fill_normal(self.weight, self.scale, source)

    def symmetric(self) -> Tensor:
        """Return S, D × D."""
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
        width, first_column = self.starts[-1], self.starts[i + 1]
        begin = self._begins[i]
        columns = width - first_column
        matrices = values[begin : begin + self.dims[i] * columns].view(self.dims[i], columns)
        column = self.starts[j] - first_column
        return matrices[:, column : column + self.dims[j]]

    @torch.no_grad()
    def restrict(self, form: MatrixForm) -> None:
        """Keep the matrices diagonal, as in FvFM, or (up to rounding) multiples of the identity, as in FwFM.

        Between fields with different dimensions, the diagonal is as long as the smaller dimension.
        """
        if form == "full":
            return
        numbers = torch.zeros(len(self.weight), dtype=torch.int64)
        for number, (i, j) in enumerate(combinations(range(len(self.dims)), 2), start=1):
            self.entries(numbers, i, j).diagonal().fill_(number)
        self._diagonal = numbers.nonzero()[:, 0]
        kept = self.weight[self._diagonal]
        if form == "scalar":
            self._pairs = numbers[self._diagonal] - 1
            firsts = [self.field_matrix(i, j)[0, 0] for i, j in combinations(range(len(self.dims)), 2)]
            kept = torch.stack([*firsts, torch.zeros(())])[self._pairs]
        self.weight.zero_()
        self.weight[self._diagonal] = kept

    def mask_gradient(self, gradient: Tensor) -> Tensor:
        if self._diagonal is not None:
            kept = gradient[self._diagonal]
            if self._pairs is not None:
                sums = kept.new_zeros(len(self.dims) * (len(self.dims) - 1) // 2)
                kept = sums.index_add_(0, self._pairs, kept)[self._pairs]
            gradient.zero_()[self._diagonal] = kept
        return super().mask_gradient(gradient)

    def has_zeros_where_fixed(self) -> bool:
        if not super().has_zeros_where_fixed():
            return False
        return self._diagonal is None or bool(
            self.weight.count_nonzero() == self.weight[self._diagonal].count_nonzero()
        )

    @property
    def n_fixed(self) -> int:
        """The number of elements of ``weight`` that training cannot choose: by pruning, or by the matrices' form."""
        if self._diagonal is None:
            return super().n_fixed
        free = torch.ones(len(self._diagonal)) if self._pruning_mask is None else self._pruning_mask[self._diagonal]
        chosen = free.nonzero() if self._pairs is None else torch.bincount(self._pairs[free > 0]).nonzero()
        return len(self.weight) - len(chosen)

    def add_identity(self, factor: float) -> None:
        for j in range(len(self.dims)):
            for i in range(j):
                self.field_matrix(i, j).diagonal().add_(factor)
