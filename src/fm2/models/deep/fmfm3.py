"""FmFM3: interactions of three fields with a low-rank tensor, suggested as future work in section 6 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fm2.models import complexity
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import Layer
from fm2.models.family.matrix import FieldMatrixInteraction
from fm2.models.initial import fill_normal


class FmFM3(DeepModel):
    """A field-matrixed factorization machine with a term for every three fields.

        logit = b + Σ_i w_i + Σ_{i<j} v_i M[i,j] v_jᵀ + Σ_{i<j<k} T[i,j,k](v_i, v_j, v_k)

    The tensors T have rank R: T[i,j,k] = Σ_r a[i,r] ⊗ a[j,r] ⊗ a[k,r], with one vector per field and rank. The triples
    therefore cost n R instead of n³ K³ operations; see :class:`TripleInteraction`. Fields can have different
    dimensions.

    >>> model = FmFM3([10, 20, 30], dims=[4, 2, 3], triple_rank=5)
    >>> model.n_parameters == 60 + (10 * 4 + 20 * 2 + 30 * 3) + (4 * 2 + 4 * 3 + 2 * 3) + 9 * 5
    True
    """

    def assemble(self, triple_rank: int, triple_std: float, matrix_std: float) -> None:
        self.pairs = FieldMatrixInteraction(self.dims, matrix_std, seed=None)
        self.triples = TripleInteraction(self.dims, triple_rank, triple_std)

    def network(self, embedding: Tensor) -> Tensor:
        return self.pairs(embedding) + self.triples(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: FmFM with its linear part, and triples."""
        return complexity.fmfm(self.dims) + self.triples.flops()


class TripleInteraction(Layer):
    """The terms of all triples i < j < k: Σ_r u[i,r] u[j,r] u[k,r], where u[i,r] = <a[i,r], v_i>.

    For each r, this is the elementary symmetric polynomial e₃ of the n numbers u[·,r]. It follows from their power sums
    p_m = Σ_i u[i,r]^m without a loop over triples: e₃ = (p₁³ - 3 p₁ p₂ + 2 p₃) / 6. An additional weight per rank would
    be redundant: the vectors can absorb its cube root.

    ``weight`` [D, R] holds the vectors of all fields, concatenated like the embeddings.
    """

    _padded_columns: Tensor
    _padding_mask: Tensor

    def __init__(self, dims: Sequence[int], rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.n = len(dims)
        self.dim = max(dims)
        self.equal = len(set(dims)) == 1
        self.weight = nn.Parameter(torch.zeros(sum(dims), rank))
        sizes = torch.tensor(dims)
        position = torch.arange(self.dim)
        columns = (sizes.cumsum(0) - sizes)[:, None] + position.minimum(sizes[:, None] - 1)
        self.register_buffer("_padded_columns", columns.view(-1), persistent=False)
        self.register_buffer("_padding_mask", (position < sizes[:, None]).view(-1, 1).float(), persistent=False)

    def draw(self, source: torch.Generator) -> None:
        fill_normal(self.weight, self.scale, source)

    def projections(self, V: Tensor) -> Tensor:
        """Return u, [fields, ranks, rows]."""
        columns, vectors = V.T, cast("Tensor", self.weight)
        if not self.equal:  # pad all fields to the largest dimension; the vectors are zero in the padding
            columns = columns[self._padded_columns]
            vectors = vectors[self._padded_columns] * self._padding_mask
        # Permuting [rows, fields, dimension] instead would make onnxruntime fail on a batch without rows.
        by_field = columns.reshape(self.n, self.dim, V.shape[0])
        return torch.bmm(vectors.view(self.n, self.dim, -1).mT, by_field)

    def forward(self, V: Tensor) -> Tensor:
        u = self.projections(V)
        squares = u * u
        p1 = u.sum(0)
        p2 = squares.sum(0)
        p3 = (squares * u).sum(0)
        return (p1 * (p1 * p1 - 3 * p2) + 2 * p3).sum(0) / 6

    def flops(self) -> int:
        """Return the number of operations per row: projections, two powers, three sums, and the polynomial."""
        width, rank = self.weight.shape
        return 2 * width * rank + 5 * self.n * rank + 7 * rank
