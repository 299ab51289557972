"""FM, FwFM, FvFM and FmFM: one class with four interactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error
from fm2.models.base import GatheredModel
from fm2.models.choices import Interaction as InteractionName
from fm2.models.choices import Linear, MatrixForm
from fm2.models.embedding import FlatEmbedding, check_owners, per_field
from fm2.models.family.diagonal import Constant, Scalar, Vector
from fm2.models.family.interaction import Interaction
from fm2.models.family.matrix import FieldMatrixInteraction
from fm2.models.initial import Seed, fill_normal, generator
from fm2.models.registry import spec_of_interaction

Dims = int | Sequence[int]
KINDS: tuple[type[Interaction], ...] = (Constant, Scalar, Vector, FieldMatrixInteraction)
INTERACTIONS = {interaction.kind: interaction for interaction in KINDS}


class FactorizationMachine(GatheredModel):
    """A factorization machine: bias + linear part + the interactions of all pairs of features (equations 4, 6 and 7).

        b + linear part + Σ_{i<j} v_i M[i,j] v_jᵀ

    ``interaction`` defines the field matrices M[i,j]: the identity (``constant``, FM), r times the identity
    (``scalar``, FwFM), diag(d) (``vector``, FvFM) or a full matrix (``matrix``, FmFM). ``dims`` is the dimension of the
    embeddings, or with ``matrix`` one per field. The ``linear`` part is a weight per feature (``features``), the
    paper's <v, w_F> with a vector per field (``fields``, section 4.5), or ``both``.

    The initial weights are normally distributed with standard deviation ``embedding_std`` (embeddings),
    ``interaction_std`` (field matrices) and ``linear_std`` (the vectors w_F); the defaults are those of the paper's
    code. ``identity`` times the identity is then added to every field matrix. Weights per feature start at zero. With
    ``seed=None``, all weights are zero, to be loaded. The field matrices of ``pruned`` pairs [i, j], i < j, are zero
    and stay zero. ``signs``, for FM only, holds the factor 1 or -1 of each dimension's products. ``owners`` has, for
    each field, the index of the field whose embeddings it uses; each field has its own field matrices and weights.
    ``matrices``, for FmFM only, restricts the field matrices to ``diagonal`` ones or to ``scalar`` multiples of the
    identity. Between fields with different dimensions, the diagonal is as long as the smaller dimension.

    >>> model = FactorizationMachine([100, 50, 7], dims=[4, 4, 2], interaction="matrix", linear="fields")
    >>> model(torch.tensor([[3, 0, 6], [99, 1, 0]])).shape
    torch.Size([2])
    >>> model.field_matrix(2, 0).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        field_sizes: Sequence[int],
        dims: Dims,
        interaction: InteractionName,
        linear: Linear = "fields",
        *,
        embedding_std: float = 0.01,
        interaction_std: float | None = None,
        identity: float = 0.0,
        linear_std: float = 1.0,
        pruned: Sequence[Sequence[int]] = (),
        signs: Sequence[int] = (),
        owners: Sequence[int] = (),
        matrices: MatrixForm = "full",
        seed: Seed = 0,
    ) -> None:
        if interaction not in INTERACTIONS:
            raise Fm2Error(
                f"FactorizationMachine: unknown interaction '{interaction}'; expected one of {', '.join(INTERACTIONS)}"
            )
        kind = INTERACTIONS[interaction]
        name = spec_of_interaction(interaction).name
        if linear not in get_args(Linear):
            raise Fm2Error(f"{name}: unknown linear part '{linear}'; expected one of {', '.join(get_args(Linear))}")
        dims = per_field(dims, len(field_sizes), name)
        check_owners(owners, field_sizes, dims, name)
        if interaction_std is None:
            interaction_std = kind.default_scale
        super().__init__(
            {
                "model": name,
                "field_sizes": list(field_sizes),
                "dims": list(dims),
                "linear": linear,
                "embedding_std": embedding_std,
                "interaction_std": interaction_std,
                "identity": identity,
                "linear_std": linear_std,
                **({"pruned": [list(pair) for pair in pruned]} if pruned else {}),
                **({"signs": list(signs)} if signs else {}),
                **({"owners": list(owners)} if owners else {}),
                **({"matrices": matrices} if interaction == "matrix" else {}),
            }
        )
        self.embedding = FlatEmbedding(field_sizes, dims, owners=owners)
        self.interaction = kind(dims)
        self.linear = FlatEmbedding(field_sizes, 1, linear=True) if linear != "fields" else None
        self.field_linear = nn.Parameter(torch.zeros(self.embedding.width)) if linear != "features" else None
        self._initialize(generator(seed))
        self.interaction.restrict(matrices)
        if pruned:
            self.interaction.prune(pruned)
        if signs:
            self.interaction.sign(signs)

    @property
    def pruned(self) -> list[tuple[int, int]]:
        """The pairs of fields whose field matrices are pruned."""
        return [(i, j) for i, j in self.config.get("pruned", [])]

    @property
    def signs(self) -> list[int]:
        """The signs of an FM's dimensions, 1 or -1; empty if all are 1."""
        return list(self.config.get("signs", ()))

    def _initialize(self, source: torch.Generator | None) -> None:
        fill_normal(self.embedding.weight, self.config["embedding_std"], source)
        if self.interaction.weight is not None:
            fill_normal(self.interaction.weight, self.config["interaction_std"], source)
        if self.field_linear is not None:
            fill_normal(self.field_linear, self.config["linear_std"], source)
        if source is not None:
            self.interaction.add_identity(self.config["identity"])

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding, self.field_linear)

    @property
    def n_parameters(self) -> int:
        """The number of parameters without the bias, and without the weights that pruning or the matrices' form fixes.

        >>> FmFM([10, 10, 10], [4, 2, 3], linear="features", pruned=[(0, 2)]).n_parameters == 30 + 90 + 4 * 2 + 2 * 3
        True
        """
        return super().n_parameters - self.interaction.n_fixed

    def flops(self, cached: bool = False) -> int:
        """Return the number of floating-point operations per prediction, counted as in section 4.2 of the paper.

        With ``cached``, the model looks up the products v M instead of computing them. Pruned pairs cost nothing.
        """
        if not cached:
            return super().flops()
        if not self.spec.learns_field_matrices:
            raise Fm2Error(f"{self.name}: the model has no field matrices whose products could be cached")
        return self.flops_by_plan()["cached"]

    def field_matrix(self, i: int, j: int) -> Tensor:
        """Return the field matrix of fields ``i`` and ``j``, D_i × D_j: M in <v_i M, v_j>."""
        n = len(self.field_sizes)
        if not (0 <= i < n and 0 <= j < n and i != j):
            raise Fm2Error(
                f"{self.name}: fields {i} and {j} have no field matrix; pass two different fields between 0 and {n - 1}"
            )
        matrix = self.interaction.field_matrix(min(i, j), max(i, j)).detach().to(self.embedding.weight)
        return matrix if i < j else matrix.T


def FM(
    field_sizes: Sequence[int], dims: Dims = 16, linear: Linear = "features", **options: Any
) -> FactorizationMachine:
    """Return a factorization machine (equation 4); ``options`` are passed to :class:`FactorizationMachine`.

    >>> FM([10, 10], 4).n_parameters
    100
    """
    return FactorizationMachine(field_sizes, dims, "constant", linear, **options)


def FwFM(
    field_sizes: Sequence[int], dims: Dims = 16, linear: Linear = "fields", **options: Any
) -> FactorizationMachine:
    """Return a field-weighted factorization machine (equation 6): a weight r per pair of fields.

    >>> FwFM([10, 10], 4, linear="features").n_parameters
    101
    """
    return FactorizationMachine(field_sizes, dims, "scalar", linear, **options)


def FvFM(
    field_sizes: Sequence[int], dims: Dims = 16, linear: Linear = "fields", **options: Any
) -> FactorizationMachine:
    """Return a field-vectorized factorization machine (section 3.1.3): a vector d per pair of fields.

    >>> FvFM([10, 10], 4, linear="features").n_parameters
    104
    """
    return FactorizationMachine(field_sizes, dims, "vector", linear, **options)


def FmFM(
    field_sizes: Sequence[int], dims: Dims = 16, linear: Linear = "fields", **options: Any
) -> FactorizationMachine:
    """Return a field-matrixed factorization machine (equation 7): a D_i × D_j matrix per pair of fields.

    >>> FmFM([10, 10], [4, 2], linear="features").n_parameters
    88
    """
    return FactorizationMachine(field_sizes, dims, "matrix", linear, **options)
