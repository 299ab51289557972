"""The interaction of FM: every field matrix is the identity, or the same diagonal matrix of signs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models.family.interaction import Interaction


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
