"""The pair terms as one quadratic form, with a backward written by hand.

A row's embeddings, side by side, are one vector v; the field matrices are the blocks of one symmetric matrix S, whose
diagonal blocks are zero. Then

    pair terms + linear terms = 1/2 vᵀ S v + wᵀ v        d/dv = S v + w        d/dM[i,j] = v_i v_jᵀ

so that the gradient of v needs no product that the forward pass has not made, and that of the field matrices needs one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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

    __call__: Callable[..., Tensor]
    default_scale: ClassVar[float]  # of the first weights
    weight: nn.Parameter | None
    _kept: Tensor | None  # 1, and 0 where pairs are pruned

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = tuple(dims)
        self.register_parameter("weight", None)
        self.register_buffer("_kept", None, persistent=False)

    def forward(self, V: Tensor, w: Tensor | None = None) -> Tensor:
        """Give 1/2 vᵀ S v + wᵀ v for every row v of V, or the pair terms alone."""
        terms: Tensor = _QuadraticForm.apply(V, self.weight, w, self)  # type: ignore[no-untyped-call]
        return terms

    @abstractmethod
    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        """Give 1/2 vᵀ S v + wᵀ v for every row v, and what ``row_gradient`` wants to find in ``kept``."""

    @abstractmethod
    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, kept: Tensor) -> Tensor:
        """Give g (S v + w) for every row v."""

    def weight_gradient(self, g: Tensor, V: Tensor) -> Tensor | None:
        """Give the gradient of ``weight``."""
        return None

    @abstractmethod
    def field_matrix(self, i: int, j: int) -> Tensor:
        """Give the field matrix of the pair i < j."""

    def add_identity(self, factor: float) -> None:
        """Add a multiple of the identity to every field matrix that may change."""

    def prune(self, pairs: Sequence[Sequence[int]]) -> None:
        """Set the field matrices of these pairs i < j to zero, where :meth:`hold` keeps them."""
        raise Fm2Error("fm: its field matrices are the identity, and none can be pruned; fwfm, fvfm and fmfm can")

    def sign(self, signs: Sequence[int]) -> None:
        """Let each coordinate's products count with a sign, 1 or -1."""
        raise Fm2Error("model: signs are for fm; the others of its family have field matrices that can hold them")

    def hold(self, slope: Tensor) -> Tensor:
        """Clear a gradient of ``weight`` where pairs are pruned: a zero that never has a gradient stays one."""
        return slope if self._kept is None else slope.mul_(self._kept)

    def holds(self) -> bool:
        """Tell whether the field matrices of all pruned pairs are zero."""
        return self.weight is None or self._kept is None or not self.weight[self._kept == 0].any()

    @property
    def n_held(self) -> int:
        """How many numbers of ``weight`` are those of pruned pairs."""
        return 0 if self._kept is None else int((self._kept == 0).sum())

    def require_equal_dims(self) -> None:
        """Refuse dimensions that differ: the field matrices are diagonal."""
        if len(set(self.dims)) > 1:
            raise Fm2Error(
                f"model: the fields' dimensions are {', '.join(map(str, self.dims))}; the interaction "
                f"'{type(self).__name__.lower()}' needs equal ones; fmfm alone takes one per field"
            )


class Trainable(Interaction):
    """An interaction that has parameters, so that V S is a product of matrices."""

    weight: nn.Parameter

    @abstractmethod
    def product(self, V: Tensor) -> Tensor:
        """Give V S."""

    @abstractmethod
    def entries(self, values: Tensor, i: int, j: int) -> Tensor:
        """Give those of ``values``, which are laid out as ``weight`` is, that are the pair's, i < j: a view."""

    def prune(self, pairs: Sequence[Sequence[int]]) -> None:
        n = len(self.dims)
        self._kept = torch.ones_like(self.weight, requires_grad=False)
        for pair in pairs:
            if len(pair) != 2 or not 0 <= pair[0] < pair[1] < n:
                raise Fm2Error(f"model: {list(pair)} is no pair of fields i < j of 0 to {n - 1}, and cannot be pruned")
            self.entries(self._kept, *pair).zero_()
        self.weight.data *= self._kept

    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        product = self.product(V)
        terms = torch.linalg.vecdot(V, product) / 2
        if w is not None:
            terms.addmv_(V, w)
            product += w
        return terms, product

    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, kept: Tensor) -> Tensor:
        return kept * g[:, None]


class _QuadraticForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, V: Tensor, weight: Tensor | None, w: Tensor | None, interaction: Interaction) -> Tensor:
        terms, kept = interaction.terms(V, w)
        ctx.interaction = interaction
        ctx.save_for_backward(V, w, kept)
        return terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        V, w, kept = ctx.saved_tensors
        wants_V, wants_weight, wants_w, _ = ctx.needs_input_grad
        return (
            ctx.interaction.row_gradient(g, V, w, kept) if wants_V else None,
            ctx.interaction.hold(ctx.interaction.weight_gradient(g, V)) if wants_weight else None,
            g @ V if wants_w else None,
            None,
        )
