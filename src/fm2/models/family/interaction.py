"""Pair terms as one quadratic form with a handwritten backward pass.

A row's embeddings are concatenated to one vector v. The field matrices are the blocks of one symmetric matrix S, whose
diagonal blocks are zero. Then

    pair terms + linear terms = 1/2 vᵀ S v + wᵀ v        d/dv = S v + w        d/dM[i,j] = v_i v_jᵀ

The gradient of v reuses the product S v of the forward pass; the gradient of the field matrices needs one more product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error
from fm2.models.choices import Interaction as InteractionName
from fm2.models.choices import MatrixForm
from fm2.models.registry import spec_of_interaction


class Interaction(nn.Module, ABC):
    """Base class of the interactions of all pairs of fields; a subclass defines the structure of S.

    ``weight`` holds the free parameters of the field matrices of the pairs i < j. In all methods, ``V`` is [rows, D],
    ``w`` is the linear part's vector of length D or None, and ``g`` [rows] is the gradient of the loss with respect to
    the terms.
    """

    __call__: Callable[..., Tensor]
    kind: ClassVar[InteractionName]
    default_scale: ClassVar[float]  # standard deviation of the initial weights
    weight: nn.Parameter | None
    _pruning_mask: Tensor | None  # of ``weight``: 0 for pruned pairs, otherwise 1

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = tuple(dims)
        self.register_parameter("weight", None)
        self.register_buffer("_pruning_mask", None, persistent=False)

    @property
    def model(self) -> str:
        """The name of the model with this interaction, for error messages."""
        return spec_of_interaction(self.kind).name

    def forward(self, V: Tensor, w: Tensor | None = None) -> Tensor:
        """Return 1/2 vᵀ S v + wᵀ v for every row v of V, or the pair terms alone if there is no w."""
        terms: Tensor = _QuadraticForm.apply(V, self.weight, w, self)  # type: ignore[no-untyped-call]
        return terms

    @abstractmethod
    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return 1/2 vᵀ S v + wᵀ v for every row v, and a tensor that is saved for ``row_gradient``."""

    @abstractmethod
    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, saved: Tensor) -> Tensor:
        """Return g (S v + w) for every row v."""

    def weight_gradient(self, g: Tensor, V: Tensor) -> Tensor | None:
        """Return the gradient of ``weight``, or None if there are no weights."""
        return None

    @abstractmethod
    def field_matrix(self, i: int, j: int) -> Tensor:
        """Return the field matrix of the pair i < j."""

    def add_identity(self, factor: float) -> None:
        """Add a multiple of the identity to every trainable field matrix."""

    def prune(self, pairs: Sequence[Sequence[int]]) -> None:
        """Set the field matrices of these pairs i < j to zero; :meth:`mask_gradient` keeps them there."""
        raise Fm2Error(
            f"{self.model}: cannot prune pairs, because no field matrix is trainable; use fwfm, fvfm or fmfm"
        )

    def sign(self, signs: Sequence[int]) -> None:
        """Multiply the products of each coordinate by a sign, 1 or -1."""
        raise Fm2Error(f"{self.model}: unexpected signs; only fm takes them")

    def mask_gradient(self, gradient: Tensor) -> Tensor:
        """Change a gradient of ``weight`` in place, so that the weights of pruned pairs stay zero."""
        return gradient if self._pruning_mask is None else gradient.mul_(self._pruning_mask)

    def has_zeros_where_fixed(self) -> bool:
        """Return whether all elements that have to be zero, such as those of pruned pairs, are zero."""
        return self.weight is None or self._pruning_mask is None or not self.weight[self._pruning_mask == 0].any()

    def restrict(self, form: MatrixForm) -> None:
        """Change the field matrices to a simpler form; :meth:`mask_gradient` keeps them there."""
        if form != "full":
            raise Fm2Error(f"{self.model}: the field matrices cannot be {form}; only those of fmfm can")

    @property
    def n_fixed(self) -> int:
        """The number of elements of ``weight`` that training cannot choose: those of pruned pairs."""
        return 0 if self._pruning_mask is None else int((self._pruning_mask == 0).sum())

    def require_equal_dims(self) -> None:
        """Raise an error if the fields' dimensions differ, because the field matrices are diagonal."""
        if len(set(self.dims)) > 1:
            raise Fm2Error(
                f"{self.model}: the fields have dimensions {', '.join(map(str, self.dims))}; they must be equal; fmfm "
                "accepts one per field"
            )


class Trainable(Interaction):
    """Base class of interactions with parameters; V S is a matrix product."""

    weight: nn.Parameter

    @abstractmethod
    def product(self, V: Tensor) -> Tensor:
        """Return V S."""

    @abstractmethod
    def entries(self, values: Tensor, i: int, j: int) -> Tensor:
        """Return a view of the elements of ``values``, which has the layout of ``weight``, of the pair i < j."""

    def prune(self, pairs: Sequence[Sequence[int]]) -> None:
        n = len(self.dims)
        self._pruning_mask = torch.ones_like(self.weight, requires_grad=False)
        for pair in pairs:
            if len(pair) != 2 or not 0 <= pair[0] < pair[1] < n:
                raise Fm2Error(
                    f"{self.model}: cannot prune the pair {list(pair)}; expected two fields i < j between 0 and {n - 1}"
                )
            self.entries(self._pruning_mask, *pair).zero_()
        self.weight.data *= self._pruning_mask

    def terms(self, V: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor]:
        product = self.product(V)
        terms = torch.linalg.vecdot(V, product) / 2
        if w is not None:
            terms.addmv_(V, w)
            product += w
        return terms, product

    def row_gradient(self, g: Tensor, V: Tensor, w: Tensor | None, saved: Tensor) -> Tensor:
        return saved * g[:, None]


class _QuadraticForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, V: Tensor, weight: Tensor | None, w: Tensor | None, interaction: Interaction) -> Tensor:
        terms, saved = interaction.terms(V, w)
        ctx.interaction = interaction
        ctx.save_for_backward(V, w, saved)
        return terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        V, w, saved = ctx.saved_tensors
        needs_V, needs_weight, needs_w, _ = ctx.needs_input_grad
        interaction = ctx.interaction
        return (
            interaction.row_gradient(g, V, w, saved) if needs_V else None,
            interaction.mask_gradient(interaction.weight_gradient(g, V)) if needs_weight else None,
            g @ V if needs_w else None,
            None,
        )
