"""Measurements of fields: the information in pairs of them, their dimensions, and the strength of their interaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.compression.dimensions import find_bases
from fm2.compression.prune import pair_strengths
from fm2.compression.retraining import find_occurrences
from fm2.data.dataset import Dataset
from fm2.data.description import describe
from fm2.data.rows import EncodedRows, Lists
from fm2.evaluation.evaluate import effective_rows, targets
from fm2.models import FactorizationMachine
from fm2.studies.reporting.mutual_information import Matrix, information_and_chance
from fm2.training.run import Run

MOST_IDS = 80_000_000  # 320 MB, or 2 million rows of 40 fields; more rows would hardly change a chart
VARIANCE = 0.95
NUMBER_BUCKETS = 50


@dataclass(frozen=True)
class Information:
    """The mutual information of field pairs with the label, and its expectation under chance.

    It is measured on ``rows`` of the ``total_rows`` training rows, or impressions.
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
    total = round(effective_rows(dataset, "train"))
    if not total:
        return None
    rows, labels = sample_rows(*targets(dataset, "train"), total, MOST_IDS // len(dataset.field_sizes))
    encoded, sizes = bucket_numbers(dataset.train.encoded[rows], dataset)
    measured, chance = information_and_chance(encoded, labels, sizes, threads)
    return Information(measured, chance, len(labels), total)


def sample_rows(
    labels: NDArray[Any], weights: NDArray[Any] | None, total: int, most: int
) -> tuple[slice | NDArray[np.int64], NDArray[np.uint8]]:
    """Return up to ``most`` of ``total`` equally weighted, evenly spaced rows, and their labels 0 or 1.

    A row of the log occurs as often as its weight demands, and a share of its copies are clicks: its click rate.

    >>> sample_rows(np.array([0.25, 1.0]), np.array([4.0, 2.0]), 6, 100)
    (array([0, 0, 0, 0, 1, 1]), array([1, 0, 0, 0, 1, 1], dtype=uint8))
    """
    if weights is None:
        stride = slice(None, None, -(-total // max(most, 1)))
        return stride, np.asarray(labels[stride], np.uint8)
    count = min(total, most)
    ends = np.cumsum(weights, dtype=np.float64)
    positions = (np.arange(count) + 0.5) * (ends[-1] / count)
    rows = np.minimum(np.searchsorted(ends, positions, side="right"), len(ends) - 1)
    clicks_end = ends[rows] - weights[rows] * (1.0 - labels[rows])
    return rows, (positions < clicks_end).astype(np.uint8)


def bucket_numbers(rows: EncodedRows, dataset: Dataset) -> tuple[EncodedRows, list[int]]:
    """Divide the numbers of linear fields, which are weights, into buckets of equal size; return the new field sizes.

    Rows of such a field differ in the weight of their one feature only, which mutual information ignores.
    """
    lists, sizes = dict(rows.lists), list(dataset.field_sizes)
    ids = np.array(rows.ids) if lists else rows.ids
    for index, field in enumerate(dataset.schema.fields):
        if field.transform == "linear":
            numbers = lists[index].take(rows.ids[:, index])
            weights = numbers.value_weights()
            quantiles = np.linspace(0, 1, NUMBER_BUCKETS + 1)[1:-1]
            edges = np.unique(np.quantile(weights, quantiles)) if len(weights) else np.empty(0)
            bucketed = numbers.ids * (len(edges) + 1) + np.searchsorted(edges, weights, side="right")
            ids[:, index] = np.arange(len(ids))
            lists[index] = Lists(numbers.offsets, bucketed.astype(np.int32))
            sizes[index] *= len(edges) + 1
    return EncodedRows(ids, lists), sizes


@dataclass(frozen=True)
class ListLengths:
    """The lists of a multi-valued field: the mean and the largest number of values, and shares of lists."""

    name: str
    features: int
    mean: float
    longest: int
    empty: float
    missing: float


def measure_lists(dataset: Dataset) -> list[ListLengths]:
    """Return the lists of the multi-valued fields as ``fm2 describe`` counts them, and how long the longest one is."""
    measured = []
    for index, field in enumerate(describe(dataset)["fields"]):
        if "lists" in field:
            lists, longest = field["lists"], int(dataset.lists[index].sizes.max(initial=0))
            shares = lists["empty"], lists["missing"]
            measured.append(ListLengths(field["name"], field["features"], lists["values_per_row"], longest, *shares))
    return measured


def find_dimensions(run: Run, dataset: Dataset | None) -> Dimensions | None:
    """Return the dimensions of an FmFM's fields. None for other models, whose fields share one dimension."""
    model = run.model
    if not isinstance(model, FactorizationMachine) or not model.spec.has_full_matrices:
        return None
    trained = list(model.embedding.dims)
    if len(set(trained)) > 1 or dataset is None:
        return Dimensions(trained, trained, by_pca=False)
    bases = find_bases(model, find_occurrences(run, dataset), "counts", VARIANCE)
    return Dimensions(trained, [basis.dim for basis in bases], by_pca=True)


def measure_strengths(run: Run, dataset: Dataset) -> Matrix | None:
    """Measure the strength of every field pair as ``fm2 prune`` does. None for models without field matrices."""
    model = run.model
    if not isinstance(model, FactorizationMachine) or not model.spec.learns_field_matrices:
        return None
    matrix = np.full((len(model.field_sizes),) * 2, np.nan)
    for (i, j), strength in pair_strengths(model, find_occurrences(run, dataset)).items():
        matrix[i, j] = matrix[j, i] = strength
    return matrix
