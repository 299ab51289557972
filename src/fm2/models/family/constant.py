"""FM: every field matrix is the identity, or the same diagonal of signs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models.family.interaction import Interaction


class Constant(Interaction):
    """The sum of all embeddings takes the place of S: (S v)_i is that sum minus v_i itself, so nothing costs n².

    With signs, a coordinate's products count 1 or -1: what any field matrices are, seen from where they are diagonal.
    """

    default_scale = 0.0
    _signs: Tensor | None

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims)
        self.require_equal_dims()
        self.register_buffer("_signs", None, persistent=False)

    def sign(self, signs: Sequence[int]) -> None:
        if len(signs) != self.dims[0] or not all(type(sign) is int and abs(sign) == 1 for sign in signs):
            raise Fm2Error(f"fm: the signs are {list(signs)}; they are {self.dims[0]} numbers, each 1 or -1")
        self._signs = torch.tensor(signs, dtype=torch.float32)

    def _by_field(self, V: Tensor) -> Tensor:
        return V.reshape(-1, len(self.dims), self.dims[0])  # len(V) would tie an exported graph to it

    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = self._by_field(V)
        total = rows.sum(1)
        if self._signs is None:
            terms = (torch.linalg.vecdot(total, total) - torch.linalg.vector_norm(V, dim=1).square()) / 2
        else:
            terms = (total.square() - torch.linalg.vector_norm(rows, dim=1).square()) @ self._signs.to(V) / 2
        return terms if w is None else terms.addmv_(V, w), total

    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, kept: Tensor) -> Tensor:
        of_all = (kept * g[:, None])[:, None]
        gradient = torch.addcmul(of_all, self._by_field(V), g[:, None, None], value=-1)
        gradient = (gradient if self._signs is None else gradient.mul_(self._signs.to(V))).view_as(V)
        return gradient if w is None else gradient.addcmul_(g[:, None], w)

    def field_matrix(self, i: int, j: int) -> Tensor:
        return torch.eye(self.dims[i]) if self._signs is None else torch.diag(self._signs)
