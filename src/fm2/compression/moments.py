"""Mean and covariance of embeddings, weighted by how often each feature occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the engine uses this module without torch
    from fm2.models import FactorizationMachine

Matrix = NDArray[np.float64]
SMALLEST = 1e-7  # share of the largest eigenvalue; smaller ones are raised to it


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of embeddings: of one field, or of all fields side by side."""

    mean: Matrix
    covariance: Matrix


def weighted_moments(table: NDArray[Any], counts: NDArray[Any]) -> Moments:
    """Return the moments of a table's rows, each weighted by its count, or all equally if every count is 0."""
    shares = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    mean = shares @ table
    centered = table - mean
    return Moments(mean, (centered * shares[:, None]).T @ centered)


def power_and_inverse(matrix: Matrix, power: float, negligible: float = 0.0) -> tuple[Matrix, Matrix]:
    """Return a power of a covariance or metric, and its inverse; a negligible matrix counts as the identity."""
    values, axes = np.linalg.eigh(matrix)
    if values[-1] <= negligible:
        values = np.ones_like(values)
    powers = np.maximum(values, SMALLEST * values[-1]) ** power
    return (axes * powers) @ axes.T, (axes / powers) @ axes.T


def field_embeddings(model: FactorizationMachine) -> list[Matrix]:
    """Return the embeddings of each field, features × dimension."""
    return [model.embedding.rows(field).double().cpu().numpy() for field in range(len(model.field_sizes))]


def field_moments(model: FactorizationMachine, counts: Sequence[Matrix]) -> list[Moments]:
    """Return the moments of each field's embeddings."""
    return [weighted_moments(table, count) for table, count in zip(field_embeddings(model), counts, strict=True)]


def field_matrix(model: FactorizationMachine, i: int, j: int) -> Matrix:
    """Return the field matrix of two fields in double precision."""
    matrix: Matrix = model.field_matrix(i, j).double().cpu().numpy()
    return matrix
