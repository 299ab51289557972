"""Measurements of fields: the information in pairs of them, their dimensions, and the strength of their interaction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fm2.compression.dimensions import find_bases
from fm2.compression.prune import pair_strengths
from fm2.compression.retraining import count_features
from fm2.data.dataset import Dataset
from fm2.models import FactorizationMachine
from fm2.studies.reporting.mutual_information import Matrix, information_and_chance
from fm2.training.run import Run

MOST_IDS = 80_000_000  # 320 MB, or 2 million rows of 40 fields; more rows would hardly change a chart
VARIANCE = 0.95


@dataclass(frozen=True)
class Information:
    """The mutual information of field pairs with the label, and its expectation under chance.

    It is measured on ``rows`` of the ``total_rows`` training rows.
    """

    measured: Matrix
    chance: Matrix
    rows: int
    total_rows: int

    @property
    def corrected(self) -> Matrix:
        """The information beyond chance."""
        return self.measured - self.chance

    @property
    def synergy(self) -> Matrix:
        """The information that only a pair has: beyond chance and beyond both single fields.

        It is negative for redundant fields.
        """
        single = np.diag(self.corrected)
        synergy = self.corrected - single[:, None] - single
        np.fill_diagonal(synergy, np.nan)
        return synergy


@dataclass(frozen=True)
class Dimensions:
    """The embedding dimensions of a model, and per field the dimension it needs.

    If all fields have the same dimension, ``needed`` is what ``fm2 shrink`` would choose by PCA.
    """

    trained: list[int]
    needed: list[int]
    by_pca: bool

    @property
    def cross(self) -> Matrix:
        """The cross dimensions min(D_i, D_j) of the paper's figure 7."""
        return np.minimum.outer(self.needed, self.needed).astype(np.float64)


def measure_information(dataset: Dataset, threads: int = 0) -> Information | None:
    """Measure the information of field pairs on the training rows. None if there are no rows."""
    split, total = dataset.train, len(dataset.train)
    stride = max(-(-total * len(dataset.field_sizes) // MOST_IDS), 1)
    labels = np.asarray(split.labels[::stride])
    if not len(labels):
        return None
    measured, chance = information_and_chance(np.asarray(split.ids[::stride]), labels, dataset.field_sizes, threads)
    return Information(measured, chance, len(labels), total)


def find_dimensions(run: Run, dataset: Dataset | None) -> Dimensions | None:
    """Return the dimensions of an FmFM's fields. None for other models, whose fields share one dimension."""
    model = run.model
    if not isinstance(model, FactorizationMachine) or not model.spec.has_full_matrices:
        return None
    trained = list(model.embedding.dims)
    if len(set(trained)) > 1 or dataset is None:
        return Dimensions(trained, trained, by_pca=False)
    bases = find_bases(model, count_features(run, dataset), "counts", VARIANCE)
    return Dimensions(trained, [basis.dim for basis in bases], by_pca=True)


def measure_strengths(run: Run, dataset: Dataset) -> Matrix | None:
    """Measure the strength of every field pair as ``fm2 prune`` does. None for models without field matrices."""
    model = run.model
    if not isinstance(model, FactorizationMachine) or not model.spec.learns_field_matrices:
        return None
    matrix = np.full((len(model.field_sizes),) * 2, np.nan)
    for (i, j), strength in pair_strengths(model, count_features(run, dataset)).items():
        matrix[i, j] = matrix[j, i] = strength
    return matrix
