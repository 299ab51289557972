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

from fm2.compression.moments import Matrix, Moments, field_embeddings, field_matrix, power_and_inverse, weighted_moments
from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine

Weighting = Literal["counts", "features", "interactions"]
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


def principal_basis(table: NDArray[Any], counts: NDArray[Any], variance: float, metric: Matrix | None = None) -> Basis:
    """Find the fewest principal components, at least one, that keep a share of the variance of a table's rows.

    Each row is weighted by its count. With a ``metric`` G, the variance is E[xᵀ √G x].
    """
    moments = weighted_moments(table, counts)
    # The square root of √G. G is zero if all pairs of the field are pruned.
    root, inverse = power_and_inverse(np.eye(len(moments.mean)) if metric is None else metric, 0.25)
    variances, directions = np.linalg.eigh(root @ moments.covariance @ root)
    mean = root @ moments.mean
    significant = variances > ROUNDING * (mean @ mean)  # equal rows still differ by rounding
    kept = np.cumsum(np.where(significant, variances, 0)[::-1])
    wanted = (variance - ROUNDING) * kept[-1]
    dim = min(int(np.searchsorted(kept, wanted)) + 1, len(kept))
    chosen = directions[:, ::-1][:, :dim]
    onto, scale = np.linalg.qr(root @ chosen)  # coordinates as large as the embeddings, so that their rates fit
    return Basis(moments.mean, inverse @ chosen @ scale.T, onto)


def find_bases(
    model: FactorizationMachine, counts: Sequence[Matrix], weighting: Weighting, variance: float
) -> list[Basis]:
    """Find a basis of every field's embeddings; ``counts`` has the occurrences of each feature, field by field."""
    if weighting not in get_args(Weighting):
        raise Fm2Error(f"shrink: weighting must be one of {', '.join(get_args(Weighting))}, got '{weighting}'")
    tables = field_embeddings(model)
    metrics: Sequence[Matrix | None] = [None] * len(counts)
    if weighting == "interactions":
        moments = [weighted_moments(table, count) for table, count in zip(tables, counts, strict=True)]
        metrics = [_metric(model, moments, field) for field in range(len(moments))]
    elif weighting == "features":  # features that never occur still have their random initial embedding
        counts = [np.minimum(count, 1) for count in counts]
    return [
        principal_basis(table, count, variance, metric)
        for table, count, metric in zip(tables, counts, metrics, strict=True)
    ]


def _metric(model: FactorizationMachine, moments: Sequence[Moments], field: int) -> Matrix:
    """Return G of a field: Σ M C Mᵀ over all other fields."""
    metric = np.zeros_like(moments[field].covariance)
    for other in range(len(moments)):
        if other != field:
            M = field_matrix(model, field, other)
            metric += M @ moments[other].covariance @ M.T
    return metric
