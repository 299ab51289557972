"""The interactions of FM, FwFM and FvFM: every field matrix is diagonal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.family.interaction import Interaction, Trainable


class Constant(Interaction):
    """FM: (S v)_i is the sum of all embeddings minus v_i, so the cost is linear in the number of fields.

    With signs, the products of a coordinate are multiplied by 1 or -1, as in the spectral form of S, where they are the
    signs of its eigenvalues.
    """

    kind = "constant"
    default_scale = 0.0
    _signs: Tensor | None

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims)
        self.require_equal_dims()
        self.register_buffer("_signs", None, persistent=False)

    def sign(self, signs: Sequence[int]) -> None:
        if len(signs) != self.dims[0] or not all(type(sign) is int and abs(sign) == 1 for sign in signs):
            raise Fm2Error(f"fm: the signs are {list(signs)}; expected {self.dims[0]} numbers, each 1 or -1")
        self._signs = torch.tensor(signs, dtype=torch.float32)

    def _by_field(self, V: Tensor) -> Tensor:
        return V.reshape(-1, len(self.dims), self.dims[0])  # -1, because len(V) would fix the rows of an exported graph

    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        by_field = self._by_field(V)
        total = by_field.sum(1)
        if self._signs is None:
            terms = (torch.linalg.vecdot(total, total) - torch.linalg.vector_norm(V, dim=1).square()) / 2
        else:
            terms = (total.square() - torch.linalg.vector_norm(by_field, dim=1).square()) @ self._signs.to(V) / 2
        return terms if w is None else terms.addmv_(V, w), total

    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, saved: Tensor) -> Tensor:
        total_gradient = (saved * g[:, None])[:, None]
        gradient = torch.addcmul(total_gradient, self._by_field(V), g[:, None, None], value=-1)
        if self._signs is not None:
            gradient.mul_(self._signs.to(V))
        gradient = gradient.view_as(V)
        return gradient if w is None else gradient.addcmul_(g[:, None], w)

    def field_matrix(self, i: int, j: int) -> Tensor:
        return torch.eye(self.dims[i]) if self._signs is None else torch.diag(self._signs)


# On a CPU, a batch is transposed in blocks of about this many floats, which fit in the cache.
BLOCK = 160_000


def _blocks(V: Tensor) -> list[slice]:
    """Split the rows of a batch into blocks; on other devices, a single block is fastest."""
    step = max(BLOCK // V.shape[1] if V.device.type == "cpu" else len(V), 1)
    return [slice(begin, begin + step) for begin in range(0, len(V), step)]


class Diagonal(Trainable):
    """Coordinates do not mix, so S consists of one n × n matrix per coordinate, or one shared by all coordinates.

    A batch is transposed so that each coordinate is multiplied by its matrix: n² K operations per row instead of the
    (n K)² of the dense S, in large matrix products. (A product R·v per row would not need the transposition, but n × n
    times n × K is too small to be fast.) ``weight`` is [pairs i < j, matrices].
    """

    _upper: Tensor

    def __init__(self, dims: Sequence[int], matrices: int) -> None:
        super().__init__(dims)
        self.require_equal_dims()
        n = len(self.dims)
        self.register_buffer("_upper", torch.triu_indices(n, n, 1), persistent=False)
        self.weight = nn.Parameter(torch.zeros(self._upper.shape[1], matrices))

    def matrices(self) -> Tensor:
        """Return the symmetric matrices [matrices, n, n]; their diagonals are zero."""
        n = len(self.dims)
        upper = self.weight.new_zeros(self.weight.shape[1], n, n)
        upper[:, self._upper[0], self._upper[1]] = self.weight.T
        return upper + upper.mT

    def product(self, V: Tensor) -> Tensor:
        n, k = len(self.dims), self.dims[0]
        matrices = self.matrices()
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
        """Transpose a block to [matrices, coordinates × rows, n]; coordinates that share a matrix are adjacent."""
        n, k, matrices = len(self.dims), self.dims[0], self.weight.shape[1]
        return V.reshape(len(V), n, k).permute(2, 0, 1).reshape(matrices, k // matrices * len(V), n)

    def entries(self, values: Tensor, i: int, j: int) -> Tensor:
        earlier_pairs = i * len(self.dims) - i * (i + 1) // 2
        return values[earlier_pairs + j - i - 1]

    def field_matrix(self, i: int, j: int) -> Tensor:
        return torch.diag(self.matrices()[:, i, j].expand(self.dims[0]))

    def add_identity(self, factor: float) -> None:
        self.weight.data += factor


class Scalar(Diagonal):
    """FwFM: the field matrix of a pair is r times the identity."""

    kind = "scalar"
    default_scale = 1.0

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims, matrices=1)

    def product(self, V: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            return super().product(V)
        # An exported graph has no fixed number of rows, hence no blocks. With R on the right, onnxruntime also accepts
        # a batch without rows.
        by_coordinate = V.view(V.shape[0], len(self.dims), self.dims[0]).mT
        return (by_coordinate @ self.matrices()[0]).mT.reshape(V.shape)


class Vector(Diagonal):
    """FvFM: the field matrix of a pair is diag(d)."""

    kind = "vector"
    default_scale = 1.0

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims, matrices=dims[0])
