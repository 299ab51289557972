"""Field-specific dimensions (section 4.1 of the paper): how many each field needs, by PCA of its embeddings.

Embeddings count by what they are, or also by what the other fields see of them: the pair terms of field f with field j
are v_fᵀ M v_j, and v_j varies by C_j. So G = Σ_j M C_j Mᵀ is the metric of f's embeddings in which their variance is
that of what they add to the logit with other fields, if fields had nothing to do with each other. The root of G stands
halfway between it and no metric. By G alone a model lost twice as much on Criteo's small log, and by none it kept
directions on generated rows that nothing looks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine
from fm2.models.registry import specs
from fm2.training.run import Run

Weighting = Literal["counts", "features", "interactions"]
Matrix = NDArray[np.float64]
ROUNDING = 1e-12  # of the variance: so much may be missing from the share that is asked for
LEAST = 1e-7  # of a metric's largest value: less is taken for as much


@dataclass(frozen=True)
class Basis:
    """Where the embeddings of a field lie: v ≈ mean + ``axes`` c, with the coordinates c = ``onto``ᵀ (v - mean).

    Both are D × d. Those of ``onto`` are orthonormal columns; without a metric the ``axes`` are the same.
    """

    mean: Matrix
    axes: Matrix
    onto: Matrix

    @property
    def dim(self) -> int:
        """The dimension d that is kept."""
        return int(self.axes.shape[1])


def principal_basis(table: NDArray[Any], counts: NDArray[Any], variance: float, metric: Matrix | None = None) -> Basis:
    """Find the fewest principal components of a table's rows that keep a share of their variance; one at the least.

    A row counts as often as ``counts`` says. The variance is E[xᵀ √G x] where a ``metric`` G is given.

    >>> table = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> principal_basis(table, np.ones(4), 0.9).dim, principal_basis(table, np.ones(4), 0.95).dim
    (1, 2)
    """
    mean, covariance = moments(table, counts)
    root, inverse = _roots(metric if metric is not None else np.eye(len(mean)))
    variances, directions = np.linalg.eigh(root @ covariance @ root)
    seen = root @ mean
    real = variances > ROUNDING * (seen @ seen)  # rows that are all alike differ by rounding only
    kept = np.cumsum(np.where(real, variances, 0)[::-1])
    wanted = (variance - ROUNDING) * kept[-1]
    dim = min(int(np.searchsorted(kept, wanted)) + 1, len(kept))
    chosen = directions[:, ::-1][:, :dim]
    onto, scale = np.linalg.qr(root @ chosen)  # coordinates of the embeddings' own size, which their rates suit
    return Basis(mean, inverse @ chosen @ scale.T, onto)


def _roots(metric: Matrix) -> tuple[Matrix, Matrix]:
    """Give the root of a metric's root, and its inverse, of a metric that sees at least a little of everything."""
    values, axes = np.linalg.eigh(metric)
    if values[-1] <= 0:  # every pair is pruned: nothing is seen of anything
        return np.eye(len(metric)), np.eye(len(metric))
    roots = np.maximum(values, LEAST * values[-1]) ** 0.25
    return (axes * roots) @ axes.T, (axes / roots) @ axes.T


def moments(table: NDArray[Any], counts: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """Give mean and covariance of a table's rows, each as often as ``counts`` says, or all alike if none occurs."""
    shares = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    mean = shares @ table
    centered = table - mean
    return mean, (centered * shares[:, None]).T @ centered


def embeddings_of(model: FactorizationMachine) -> list[Matrix]:
    """Give the embeddings of a model, field by field."""
    return [model.embedding.rows(field).double().cpu().numpy() for field in range(len(model.field_sizes))]


def find_bases(
    model: FactorizationMachine, counts: Sequence[Matrix], weighting: Weighting, variance: float
) -> list[Basis]:
    """Find the basis of every field's embeddings; ``counts`` tells how often each feature occurs, field by field."""
    if weighting not in get_args(Weighting):
        raise Fm2Error(f"shrink: the weighting is '{weighting}'; it is one of {', '.join(get_args(Weighting))}")
    tables = embeddings_of(model)
    if weighting == "interactions":
        metrics = list(_metrics(model, tables, counts))
        return [principal_basis(*each) for each in zip(tables, counts, [variance] * len(tables), metrics, strict=True)]
    if weighting == "features":  # those that never occur are what chance gave them
        counts = [np.minimum(count, 1) for count in counts]
    return [principal_basis(table, count, variance) for table, count in zip(tables, counts, strict=True)]


def _metrics(model: FactorizationMachine, tables: Sequence[Matrix], counts: Sequence[Matrix]) -> Iterator[Matrix]:
    """Give G of every field: how much of its embeddings the other fields see, through the field matrices."""
    spread = [moments(table, count)[1] for table, count in zip(tables, counts, strict=True)]
    for field in range(len(tables)):
        others = [other for other in range(len(tables)) if other != field]
        matrices = {other: model.field_matrix(field, other).double().cpu().numpy() for other in others}
        yield sum((matrix @ spread[other] @ matrix.T for other, matrix in matrices.items()), 0 * spread[field])


def check_shrinkable(run: Run, variances: Sequence[float], warm: bool) -> FactorizationMachine:
    """Give the model of a run, if its fields may have dimensions of their own, by such shares of variance."""
    model = run.model
    for variance in variances:
        if not 0 < variance <= 1:
            raise Fm2Error(f"shrink: the variance is {variance}; it is a share above 0, up to 1")
    if not isinstance(model, FactorizationMachine) or not model.spec.has_full_matrices:
        shrinkable = ", ".join(spec.name for spec in specs() if spec.has_full_matrices)
        raise Fm2Error(f"shrink: the model of {run.path} is {model.name}; shrink works on {shrinkable}")
    if model.pruned and not warm:
        raise Fm2Error(
            f"shrink: the model of {run.path} is pruned, which a training from scratch would undo; --warm keeps it so"
        )
    return model
