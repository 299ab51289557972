"""FM: every field matrix is the identity."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fm2.models.family.interaction import Interaction


class Constant(Interaction):
    """The sum of all embeddings takes the place of S: (S v)_i is that sum minus v_i itself, so nothing costs n²."""

    default_scale = 0.0

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims)
        self.require_equal_dims()

    def _by_field(self, V: Tensor) -> Tensor:
        return V.reshape(-1, len(self.dims), self.dims[0])  # len(V) would tie an exported graph to it

    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        total = self._by_field(V).sum(1)
        terms = (torch.linalg.vecdot(total, total) - torch.linalg.vector_norm(V, dim=1).square()) / 2
        return terms if w is None else terms.addmv_(V, w), total

    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, kept: Tensor) -> Tensor:
        of_all = (kept * g[:, None])[:, None]
        gradient = torch.addcmul(of_all, self._by_field(V), g[:, None, None], value=-1).view_as(V)
        return gradient if w is None else gradient.addcmul_(g[:, None], w)

    def field_matrix(self, i: int, j: int) -> Tensor:
        return torch.eye(self.dims[i])
