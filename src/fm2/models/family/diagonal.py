"""FwFM and FvFM: every field matrix is diagonal, a multiple of the identity or with entries of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fm2.models.family.interaction import Trainable

# On a CPU, a batch is laid out anew in blocks of about so many floats, which its cache holds.
BLOCK = 160_000


def _blocks(V: Tensor) -> list[slice]:
    """Cut the rows of a batch into blocks; on other devices one block is best."""
    step = max(BLOCK // V.shape[1] if V.device.type == "cpu" else len(V), 1)
    return [slice(begin, begin + step) for begin in range(0, len(V), step)]


class Diagonal(Trainable):
    """Coordinates do not mix, so S falls apart into one n × n matrix per coordinate, or one for all of them.

    Laid out coordinate by coordinate, a batch is multiplied by these: n² K operations per row instead of the (n K)² of
    the dense S, by large products of matrices. (A product R·v per row would need no other layout, but n × n by n × K is
    too small a product to be quick.) ``weight`` is [pairs i < j, matrices].
    """

    _upper: Tensor

    def __init__(self, dims: Sequence[int], matrices: int) -> None:
        super().__init__(dims)
        self.require_equal_dims()
        n = len(self.dims)
        self.register_buffer("_upper", torch.triu_indices(n, n, 1), persistent=False)
        self.weight = nn.Parameter(torch.zeros(self._upper.shape[1], matrices))

    def matrices(self) -> Tensor:
        """Give the symmetric matrices [matrices, n, n], zero on their diagonals."""
        n = len(self.dims)
        upper = self.weight.new_zeros(self.weight.shape[1], n, n)
        upper[:, self._upper[0], self._upper[1]] = self.weight.T
        return upper + upper.mT

    def product(self, V: Tensor) -> Tensor:
        matrices, n, k = self.matrices(), len(self.dims), self.dims[0]
        product = V.new_empty(len(V), n, k)
        for rows in _blocks(V):
            by_coordinate = self._by_coordinate(V[rows])
            product[rows] = torch.bmm(by_coordinate, matrices).view(k, -1, n).permute(1, 2, 0)
        return product.view(len(V), n * k)

    def weight_gradient(self, g: Tensor, V: Tensor) -> Tensor:
        n, k = len(self.dims), self.dims[0]
        outer = V.new_zeros(self.weight.shape[1], n, n)
        for rows in _blocks(V):
            by_coordinate = self._by_coordinate(V[rows])
            weighted = (by_coordinate.view(k, -1, n) * g[rows, None]).view_as(by_coordinate)
            outer.baddbmm_(by_coordinate.mT, weighted)
        return outer[:, self._upper[0], self._upper[1]].T

    def _by_coordinate(self, V: Tensor) -> Tensor:
        """Lay a block out as [matrices, coordinates × rows, n], with those coordinates together that share a matrix."""
        n, k, matrices = len(self.dims), self.dims[0], self.weight.shape[1]
        return V.reshape(len(V), n, k).permute(2, 0, 1).reshape(matrices, k // matrices * len(V), n)

    def entries(self, values: Tensor, i: int, j: int) -> Tensor:
        before = i * len(self.dims) - i * (i + 1) // 2  # pairs of earlier fields
        return values[before + j - i - 1]

    def field_matrix(self, i: int, j: int) -> Tensor:
        return torch.diag(self.matrices()[:, i, j].expand(self.dims[0]))

    def add_identity(self, factor: float) -> None:
        self.weight.data += factor


class Scalar(Diagonal):
    """FwFM: the field matrix is r times the identity."""

    default_scale = 1.0

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims, matrices=1)

    def product(self, V: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            return super().product(V)
        # A graph has any number of rows, and no blocks; none of them is what onnxruntime takes on the left alone.
        by_coordinate = V.view(V.shape[0], len(self.dims), self.dims[0]).mT
        return (by_coordinate @ self.matrices()[0]).mT.reshape(V.shape)


class Vector(Diagonal):
    """FvFM: the field matrix is diag(d)."""

    default_scale = 1.0

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims, matrices=dims[0])
