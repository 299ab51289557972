"""What is known of the fields: what pairs of them tell of the label, their dimensions, and their strengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fm2.compression.dimensions import find_bases
from fm2.compression.prune import strengths
from fm2.compression.retraining import counts_of
from fm2.data.dataset import Dataset
from fm2.models import FactorizationMachine
from fm2.studies.reporting.mutual_information import Matrix, information_and_chance, rank_correlation
from fm2.training.run import Run

MOST_IDS = 80_000_000  # in 320 MB, 2 million rows of 40 fields; more would hardly change a picture
VARIANCE = 0.95


@dataclass(frozen=True)
class Information:
    """What pairs of fields tell of the label of some ``rows`` out of ``of``, and what chance would make of it."""

    plain: Matrix
    chance: Matrix
    rows: int
    of: int

    @property
    def beyond(self) -> Matrix:
        """What they tell beyond chance."""
        return self.plain - self.chance

    @property
    def together(self) -> Matrix:
        """What two fields tell only together: beyond chance and what each tells; below 0 if they tell the same."""
        alone = np.diag(self.beyond)
        found = self.beyond - alone[:, None] - alone
        np.fill_diagonal(found, np.nan)
        return found


@dataclass(frozen=True)
class Dimensions:
    """The dimension of each field: the model's own, and where those are all alike, what ``fm2 shrink`` would take."""

    own: list[int]
    needed: list[int]
    found: bool  # by PCA

    @property
    def cross(self) -> Matrix:
        """The cross dimensions min(D_i, D_j) of the paper's figure 8."""
        return np.minimum.outer(self.needed, self.needed).astype(np.float64)


def measure_information(dataset: Dataset, threads: int = 0) -> Information | None:
    """Measure what pairs of fields tell of the label of the training rows; None if there are none."""
    split, of = dataset.train, len(dataset.train)
    every = max(-(-of * len(dataset.field_sizes) // MOST_IDS), 1)
    labels = np.asarray(split.labels[::every])
    if not len(labels):
        return None
    plain, chance = information_and_chance(np.asarray(split.ids[::every]), labels, dataset.field_sizes, threads)
    return Information(plain, chance, len(labels), of)


def find_dimensions(run: Run, dataset: Dataset | None) -> Dimensions | None:
    """Find the dimensions of an FmFM's fields; None of any other model, whose fields cannot differ."""
    model = run.model
    if not isinstance(model, FactorizationMachine) or not model.spec.has_full_matrices:
        return None
    own = list(model.embedding.dims)
    if len(set(own)) > 1 or dataset is None:
        return Dimensions(own, own, found=False)
    bases = find_bases(model, counts_of(run, dataset), "counts", VARIANCE)
    return Dimensions(own, [basis.dim for basis in bases], found=True)


def measure_strengths(run: Run, dataset: Dataset) -> Matrix | None:
    """Measure the strength of every pair of fields, as ``fm2 prune`` does; None of a model without field matrices."""
    model = run.model
    if not isinstance(model, FactorizationMachine) or not model.spec.learns_field_matrices:
        return None
    found = np.full((len(model.field_sizes),) * 2, np.nan)
    for (i, j), strength in strengths(model, counts_of(run, dataset)).items():
        found[i, j] = found[j, i] = strength
    return found


def likeness(information: Information, cross: Matrix) -> tuple[float | None, float | None]:
    """Give the rank correlation of what pairs tell with their cross dimensions: plain, and without chance's part."""
    above = np.triu_indices(len(cross), 1)
    dims = cross[above]
    return rank_correlation(information.plain[above], dims), rank_correlation(information.beyond[above], dims)
