"""Field-specific dimensions (section 4.1 of the paper): how many each field needs, by PCA of its embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine
from fm2.training.run import Run

Weighting = Literal["counts", "features"]
Matrix = NDArray[np.float64]
ROUNDING = 1e-12  # of the variance: so much may be missing from the share that is asked for


@dataclass(frozen=True)
class Basis:
    """Where the embeddings of a field lie: around their ``mean``, along ``axes``, the orthonormal columns of D × d."""

    mean: Matrix
    axes: Matrix

    @property
    def dim(self) -> int:
        """The dimension d that is kept."""
        return int(self.axes.shape[1])


def principal_basis(table: NDArray[Any], counts: NDArray[Any], variance: float) -> Basis:
    """Find the fewest principal components of a table's rows that keep a share of their variance; one at the least.

    A row counts as often as ``counts`` says.

    >>> table = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> principal_basis(table, np.ones(4), 0.9).dim, principal_basis(table, np.ones(4), 0.95).dim
    (1, 2)
    """
    mean, covariance = moments(table, counts)
    variances, axes = np.linalg.eigh(covariance)
    real = variances > ROUNDING * (mean @ mean)  # rows that are all alike differ by rounding only
    kept = np.cumsum(np.where(real, variances, 0)[::-1])
    wanted = (variance - ROUNDING) * kept[-1]
    dim = min(int(np.searchsorted(kept, wanted)) + 1, len(kept))
    return Basis(mean, axes[:, ::-1][:, :dim])


def moments(table: NDArray[Any], counts: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """Give mean and covariance of a table's rows, each as often as ``counts`` says, or all alike if none occurs."""
    shares = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    mean = shares @ table
    centred = table - mean
    return mean, (centred * shares[:, None]).T @ centred


def embeddings_of(model: FactorizationMachine) -> list[Matrix]:
    """Give the embeddings of a model, field by field."""
    return [model.embedding.rows(field).double().cpu().numpy() for field in range(len(model.field_sizes))]


def find_bases(model: FactorizationMachine, counts: Sequence[Matrix], variance: float) -> list[Basis]:
    """Find the basis of every field's embeddings; ``counts`` tells how much each feature counts, field by field."""
    tables = embeddings_of(model)
    return [principal_basis(table, count, variance) for table, count in zip(tables, counts, strict=True)]


def weigh(counts: Sequence[Matrix], weighting: Weighting) -> list[Matrix]:
    """Let features count by their frequency, or all alike that occur; the others' embeddings are what chance gave them.

    >>> weigh([np.array([0.0, 5.0, 2.0])], "features")
    [array([0., 1., 1.])]
    """
    if weighting not in get_args(Weighting):
        raise Fm2Error(f"shrink: the weighting is '{weighting}'; it is one of {', '.join(get_args(Weighting))}")
    return [np.minimum(count, 1) if weighting == "features" else count for count in counts]


def check_shrinkable(run: Run, variances: Sequence[float], warm: bool) -> FactorizationMachine:
    """Give the model of a run, if its fields may have dimensions of their own, by such shares of variance."""
    model = run.model
    for variance in variances:
        if not 0 < variance <= 1:
            raise Fm2Error(f"shrink: the variance is {variance}; it is a share above 0, up to 1")
    if not isinstance(model, FactorizationMachine) or model.name != "fmfm":
        raise Fm2Error(
            f"shrink: the model of {run.path} is {model.name}; only fmfm can have fields of different dimensions"
        )
    if model.pruned and not warm:
        raise Fm2Error(
            f"shrink: the model of {run.path} is pruned, which a training from scratch would undo; --warm keeps it so"
        )
    return model
