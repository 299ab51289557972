"""Mean and covariance of the vectors of fields: embeddings, weighted by how often each feature occurs.

The vector of a list field is the weighted sum of its features' embeddings, so its moments are measured on rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.rows import Lists

if TYPE_CHECKING:  # the engine uses this module without torch
    from fm2.models import FactorizationMachine

Matrix = NDArray[np.float64]
Occurrences = Matrix | Lists  # how often each feature of a field occurs, or lists of a list field
SMALLEST = 1e-7  # share of the largest eigenvalue; smaller ones are raised to it


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of embeddings: of one field, or of all fields side by side."""

    mean: Matrix
    covariance: Matrix


def shares_of(counts: NDArray[Any]) -> Matrix:
    """Return counts as shares of their sum; equal shares if every count is 0."""
    return np.asarray(counts / counts.sum() if counts.any() else np.full(len(counts), 1 / max(len(counts), 1)))


def weighted_moments(table: NDArray[Any], counts: NDArray[Any], centered: bool = True) -> Moments:
    """Return the moments of a table's rows, each weighted by its count, or all equally if every count is 0.

    Unless they are ``centered``, the mean counts as 0, and the covariance is E[v vᵀ].
    """
    shares = shares_of(counts)
    mean = shares @ table if centered else np.zeros(table.shape[1])
    deviations = table - mean
    return Moments(mean, (deviations * shares[:, None]).T @ deviations)


def power_and_inverse(matrix: Matrix, power: float, negligible: float = 0.0) -> tuple[Matrix, Matrix]:
    """Return a power of a covariance or metric, and its inverse; a negligible matrix counts as the identity."""
    values, axes = np.linalg.eigh(matrix)
    if values[-1] <= negligible:
        values = np.ones_like(values)
    powers = np.maximum(values, SMALLEST * values[-1]) ** power
    return (axes * powers) @ axes.T, (axes / powers) @ axes.T


def pooled(table: NDArray[Any], lists: Lists) -> NDArray[Any]:
    """Return the weighted sum of a table's rows for every list.

    >>> pooled(np.array([[1.0, 10.0], [2.0, 20.0]]), Lists.of([[0, 1], [], [1]], [[1, 0.5], [], [3]])).tolist()
    [[2.0, 20.0], [0.0, 0.0], [6.0, 60.0]]
    """
    sums = np.zeros((len(lists), *table.shape[1:]), table.dtype)
    filled = np.flatnonzero(lists.sizes)
    if len(filled):
        values = table[lists.ids] * lists.value_weights().reshape(-1, *[1] * (table.ndim - 1)).astype(table.dtype)
        sums[filled] = np.add.reduceat(values, lists.offsets[filled])
    return sums


def field_embeddings(model: FactorizationMachine) -> list[Matrix]:
    """Return the embeddings of each field, features × dimension."""
    return [model.embedding.rows(field).double().cpu().numpy() for field in range(len(model.field_sizes))]


def field_vectors(table: Matrix, occurrences: Occurrences) -> tuple[Matrix, Matrix]:
    """Return vectors of a field, and how often each of them occurs."""
    if isinstance(occurrences, Lists):
        return pooled(table, occurrences), np.ones(len(occurrences))
    return table, occurrences


def field_moments(model: FactorizationMachine, occurrences: Sequence[Occurrences]) -> list[Moments]:
    """Return the moments of each field's vectors."""
    tables = zip(field_embeddings(model), occurrences, strict=True)
    return [weighted_moments(*field_vectors(table, found)) for table, found in tables]


def field_matrix(model: FactorizationMachine, i: int, j: int) -> Matrix:
    """Return the field matrix of two fields in double precision."""
    matrix: Matrix = model.field_matrix(i, j).double().cpu().numpy()
    return matrix
