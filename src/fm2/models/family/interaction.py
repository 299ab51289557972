"""The pair terms as one quadratic form, with a backward written by hand.

A row's embeddings, side by side, are one vector v; the field matrices are the blocks of one symmetric matrix S, whose
diagonal blocks are zero. Then

    pair terms + linear terms = 1/2 vᵀ S v + wᵀ v        d/dv = S v + w        d/dM[i,j] = v_i v_jᵀ

so that the gradient of v needs no product that the forward pass has not made, and that of the field matrices needs one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error


class Interaction(nn.Module, ABC):
    """How all pairs of fields interact: what S may be, and how to calculate with it.

    ``weight`` holds the free parameters of the field matrices of the pairs i < j, and no others. In the methods ``V``
    is [rows, D], ``w`` the linear part's vector of D or None, ``g`` [rows] the gradient that comes from the loss.
    """

    default_scale: ClassVar[float]  # of the first weights
    weight: nn.Parameter | None

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = tuple(dims)
        self.register_parameter("weight", None)

    def forward(self, V: Tensor, w: Tensor | None) -> Tensor:
        """Give 1/2 vᵀ S v + wᵀ v for every row v of V."""
        terms: Tensor = _QuadraticForm.apply(V, self.weight, w, self)  # type: ignore[no-untyped-call]
        return terms

    def product(self, V: Tensor) -> tuple[Tensor, ...]:
        """Give V S and, after it, what else ``weight_gradient`` wants to find in ``kept``."""
        raise NotImplementedError

    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Give 1/2 vᵀ S v + wᵀ v for every row v, and what the gradients want to find in ``kept``."""
        product, *more = self.product(V)
        terms = torch.linalg.vecdot(V, product) / 2
        if w is not None:
            terms.addmv_(V, w)
            product += w
        return terms, (product, *more)

    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, kept: Sequence[Tensor]) -> Tensor:
        """Give g (S v + w) for every row v."""
        return kept[0] * g[:, None]

    def weight_gradient(self, g: Tensor, V: Tensor, kept: Sequence[Tensor]) -> Tensor:
        """Give the gradient of ``weight``."""
        raise NotImplementedError

    @abstractmethod
    def field_matrix(self, i: int, j: int) -> Tensor:
        """Give the field matrix of the pair i < j."""

    def set_identity(self, factor: float) -> None:
        """Add a multiple of the identity to every field matrix."""


class EqualDims(Interaction):
    """An interaction whose field matrices are diagonal, so that all fields need the same dimension."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__(dims)
        if len(set(dims)) > 1:
            raise Fm2Error(
                f"model: the fields' dimensions are {', '.join(map(str, self.dims))}; the interaction "
                f"'{type(self).__name__.lower()}' needs equal ones, only 'matrix' (FmFM) does not"
            )


class _QuadraticForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, V: Tensor, weight: Tensor | None, w: Tensor | None, interaction: Interaction) -> Tensor:
        terms, kept = interaction.terms(V, w)
        ctx.interaction = interaction
        ctx.save_for_backward(V, w, *kept)
        return terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        V, w, *kept = ctx.saved_tensors
        wants_V, wants_weight, wants_w, _ = ctx.needs_input_grad
        return (
            ctx.interaction.row_gradient(g, V, w, kept) if wants_V else None,
            ctx.interaction.weight_gradient(g, V, kept) if wants_weight else None,
            g @ V if wants_w else None,
            None,
        )
