"""Field-specific dimensions (section 4.1 of the paper): how many each field needs, by PCA of its embeddings.

The variance that PCA keeps can be that of the embeddings, or that of their effect on the logit. The pair terms of
fields f and j are v_fᵀ M v_j, and v_j has the covariance C_j. If fields are independent, the variance of all pair terms
of field f is measured by the metric G = Σ_j M C_j Mᵀ. The weighting "interactions" uses √G, halfway between G and no
metric: on Criteo's small log, G lost twice as much quality, and on generated data no metric kept directions that no
other field uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.compression.moments import (
    Matrix,
    Moments,
    Occurrences,
    field_embeddings,
    field_matrix,
    field_moments,
    field_vectors,
    power_and_inverse,
    shares_of,
    weighted_moments,
)
from fm2.data.rows import Lists
from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine

Weighting = Literal["counts", "features", "interactions", "authors"]
ROUNDING = 1e-12  # share of the variance that may be missing because of rounding


@dataclass(frozen=True)
class Basis:
    """An affine basis of a field's embeddings: v ≈ mean + ``axes`` c, with the coordinates c = ``onto``ᵀ (v - mean).

    Both matrices are D × d. The columns of ``onto`` are orthonormal; without a metric, ``axes`` equals ``onto``.
    """

    mean: Matrix
    axes: Matrix
    onto: Matrix

    @property
    def dim(self) -> int:
        """The number of dimensions kept, d."""
        return int(self.axes.shape[1])


def principal_basis(
    table: NDArray[Any],
    counts: NDArray[Any],
    variance: float,
    metric: Matrix | None = None,
    centered: bool = True,
    least: int = 1,
) -> Basis:
    """Find the fewest principal components, but ``least``, that keep a share of the variance of a table's rows.

    Each row is weighted by its count. With a ``metric`` G, the variance is E[xᵀ √G x]. Unless it is ``centered``, the
    basis is linear: its mean is 0.
    """
    moments = weighted_moments(table, counts, centered)
    # The square root of √G. G is zero if all pairs of the field are pruned.
    root, inverse = power_and_inverse(np.eye(len(moments.mean)) if metric is None else metric, 0.25)
    variances, directions = np.linalg.eigh(root @ moments.covariance @ root)
    mean = root @ moments.mean
    significant = variances > ROUNDING * (mean @ mean)  # equal rows still differ by rounding
    kept = np.cumsum(np.where(significant, variances, 0)[::-1])
    wanted = (variance - ROUNDING) * kept[-1]
    dim = min(max(int(np.searchsorted(kept, wanted)) + 1, least), len(kept))
    chosen = directions[:, ::-1][:, :dim]
    onto, scale = np.linalg.qr(root @ chosen)  # coordinates as large as the embeddings, so that their rates fit
    return Basis(moments.mean, inverse @ chosen @ scale.T, onto)


def find_bases(
    model: FactorizationMachine, occurrences: Sequence[Occurrences], weighting: Weighting, variance: float
) -> list[Basis]:
    """Find a basis of every field's vectors; fields that share their embeddings have the same one.

    The weighting ``authors`` is that of the paper's code: all features of the vocabulary count equally, whether they
    occur in training or not, but the unknown one does not count, and every field has at least two dimensions.

    The basis of a list field is linear. A mean would have to be multiplied by the sum of the list's weights, which is
    not always 1.
    """
    if weighting not in get_args(Weighting):
        raise Fm2Error(f"shrink: weighting must be one of {', '.join(get_args(Weighting))}, got '{weighting}'")
    tables = field_embeddings(model)
    is_list = [isinstance(found, Lists) for found in occurrences]
    metrics: list[Matrix] | None = None
    if weighting == "interactions":
        moments = field_moments(model, occurrences)
        metrics = [_metric(model, moments, field) for field in range(len(moments))]
    elif weighting == "features":  # features that never occur still have their random initial embedding
        occurrences = [_occurs(found, len(table)) for found, table in zip(occurrences, tables, strict=True)]
    elif weighting == "authors":
        occurrences = [np.minimum(np.arange(len(table)), 1.0) for table in tables]
    owners = model.embedding.owners
    bases = {}
    for owner in sorted(set(owners)):
        fields = [field for field in range(len(tables)) if owners[field] == owner]
        vectors, counts = zip(*(field_vectors(tables[field], occurrences[field]) for field in fields), strict=True)
        bases[owner] = principal_basis(
            np.concatenate(vectors),
            np.concatenate([shares_of(count) for count in counts]),
            variance,
            None if metrics is None else np.sum([metrics[field] for field in fields], axis=0),
            centered=not any(is_list[field] for field in fields),
            least=2 if weighting == "authors" else 1,
        )
    return [bases[owner] for owner in owners]


def _occurs(occurrences: Occurrences, size: int) -> Matrix:
    """Return 1 for each feature of a field that occurs, and 0 for the others."""
    counts = np.bincount(occurrences.ids, minlength=size) if isinstance(occurrences, Lists) else occurrences
    return np.minimum(counts, 1).astype(np.float64)


def _metric(model: FactorizationMachine, moments: Sequence[Moments], field: int) -> Matrix:
    """Return G of a field: Σ M C Mᵀ over all other fields."""
    metric = np.zeros_like(moments[field].covariance)
    for other in range(len(moments)):
        if other != field:
            M = field_matrix(model, field, other)
            metric += M @ moments[other].covariance @ M.T
    return metric
