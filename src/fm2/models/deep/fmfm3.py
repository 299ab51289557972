"""FmFM3: the paper's further work (section 6), three fields that interact, kept affordable by a tensor of low rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fm2.models import complexity
from fm2.models.deep.base import DeepModel
from fm2.models.family.matrix import FieldMatrixInteraction
from fm2.models.initial import fill_normal


class FmFM3(DeepModel):
    """A field-matrixed factorization machine, and a term for every three fields.

        Σ_{i<j} v_i M[i,j] v_jᵀ  +  Σ_{i<j<k} T[i,j,k](v_i, v_j, v_k)

    The tensors T of all triples together have the rank R: T[i,j,k] = Σ_r a[i,r] ⊗ a[j,r] ⊗ a[k,r], with one vector per
    field and rank. So the triples cost n R instead of n³ K³; see :class:`TripleInteraction`. Fields may differ in
    dimension.

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
        """Count the floating point operations of one prediction: FmFM with its linear part, and the triples."""
        return complexity.fmfm(self.dims) + self.triples.flops()


class TripleInteraction(nn.Module):
    """The terms of all three fields i < j < k: Σ_r u[i,r] u[j,r] u[k,r], where u[i,r] = <a[i,r], v_i>.

    For each r that is the elementary symmetric polynomial e₃ of the n numbers u[·,r], which their power sums
    p_m = Σ_i u[i,r]^m give without a loop over triples: e₃ = (p₁³ - 3 p₁ p₂ + 2 p₃) / 6. A weight per rank would add
    nothing: its cube root, of either sign, is in the vectors already.

    ``weight`` has the vectors side by side as the embeddings are, [D, R].

    >>> triples = TripleInteraction([1, 1, 1, 1], rank=1)
    >>> triples.weight.data.fill_(1)
    tensor([[1.],
            [1.],
            [1.],
            [1.]])
    >>> triples(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).item()  # 6 + 8 + 12 + 24
    50.0
    """

    __call__: Callable[..., Tensor]
    _columns: Tensor
    _real: Tensor

    def __init__(self, dims: Sequence[int], rank: int, scale: float = 0.0) -> None:
        super().__init__()
        self.scale, self.n, self.dim = scale, len(dims), max(dims)
        self.equal = len(set(dims)) == 1
        self.weight = nn.Parameter(torch.zeros(sum(dims), rank))
        sizes = torch.tensor(dims)
        within = torch.arange(self.dim)
        columns = (sizes.cumsum(0) - sizes)[:, None] + within.minimum(sizes[:, None] - 1)
        self.register_buffer("_columns", columns.view(-1), persistent=False)
        self.register_buffer("_real", (within < sizes[:, None]).view(-1, 1).float(), persistent=False)

    def draw(self, source: torch.Generator) -> None:
        """Draw the first vectors."""
        fill_normal(self.weight, self.scale, source)

    def projections(self, V: Tensor) -> Tensor:
        """Give u, [fields, ranks, rows]."""
        rows, vectors = V.T, cast("Tensor", self.weight)
        if not self.equal:  # all fields get the largest dimension; what is repeated for it counts zero times
            rows, vectors = rows[self._columns], vectors[self._columns] * self._real
        # Not by a permutation of [rows, fields, dimension]: onnxruntime fails at its product where there are no rows.
        by_field = rows.reshape(self.n, self.dim, V.shape[0])
        return torch.bmm(vectors.view(self.n, self.dim, -1).mT, by_field)

    def forward(self, V: Tensor) -> Tensor:
        u = self.projections(V)
        squares = u * u
        first, second, third = u.sum(0), squares.sum(0), (squares * u).sum(0)
        return (first * (first * first - 3 * second) + 2 * third).sum(0) / 6

    def flops(self) -> int:
        """Count the operations of a row: the projections, two powers and three sums of them, and what follows."""
        width, rank = self.weight.shape
        return 2 * width * rank + 5 * self.n * rank + 7 * rank
