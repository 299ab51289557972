"""The embeddings of a field in two dimensions: the first principal components, weighted by frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.evaluation.evaluate import targets
from fm2.evaluation.metrics import Floats
from fm2.models.embedding import FlatEmbedding
from fm2.training.backend import to_numpy
from fm2.training.run import Run

MOST_FEATURES = 150  # in a map: the most frequent ones
ROWS_PER_CHUNK = 1 << 18
MISSING = "<missing>"


def map_embeddings(run: Run, dataset: Dataset, name: str) -> dict[str, Any] | None:
    """Return the most frequent features of a field: coordinates, number of rows and click rate in training.

    ``variance`` is the share of the embeddings' variance that the two dimensions show. None if the model has no
    embeddings, or the field has fewer than 3 features.
    """
    table = getattr(run.model, "embedding", None)
    field = dataset.schema.names.index(name)
    if not isinstance(table, FlatEmbedding) or dataset.field_sizes[field] < 3:
        return None
    counts, rates = count_clicks(dataset, field)
    shown = [int(id) for id in np.argsort(-counts, kind="stable")[:MOST_FEATURES] if counts[id] > 0]
    if len(shown) < 3:
        return None
    vectors = to_numpy(table.rows(field)).astype(np.float64)
    coordinates, variance = project(vectors, counts)
    vocabulary = dataset.vocabularies[field]
    features = [
        {
            "value": MISSING if (value := vocabulary.value(id)) is None else value,
            "rows": float(counts[id]),
            "click_rate": float(rates[id]),
            "x": float(coordinates[id, 0]),
            "y": float(coordinates[id, 1]),
        }
        for id in shown
    ]
    return {"field": name, "features": features, "size": dataset.field_sizes[field], "variance": variance}


def project(vectors: Floats, counts: Floats) -> tuple[Floats, float]:
    """Return coordinates of vectors along their two principal axes, and the share of the variance that they have.

    >>> coordinates, variance = project(np.array([[0.0, 0, 0], [4, 0, 0], [0, 3, 0]]), np.ones(3))
    >>> coordinates.shape, round(variance, 4)
    ((3, 2), 1.0)
    """
    weights = counts / counts.sum()
    centered = vectors - weights @ vectors
    values, axes = np.linalg.eigh((centered * weights[:, None]).T @ centered)
    largest = axes[:, ::-1][:, :2]
    signs = np.sign(largest[np.abs(largest).argmax(axis=0), range(largest.shape[1])])  # so that a map is reproducible
    coordinates = centered @ (largest * np.where(signs == 0, 1, signs))
    if coordinates.shape[1] < 2:
        coordinates = np.column_stack([coordinates, np.zeros(len(coordinates))])
    return coordinates, float(values[::-1][:2].sum() / max(values.sum(), 1e-300))


def count_clicks(dataset: Dataset, field: int) -> tuple[Floats, Floats]:
    """Return the weight of the training rows that have each feature of a field, and their click rates."""
    rows, size = dataset.train.encoded, dataset.field_sizes[field]
    labels, weights = targets(dataset, "train")
    counts, clicks = np.zeros(size), np.zeros(size)
    for begin in range(0, len(rows), ROWS_PER_CHUNK):
        chunk = slice(begin, begin + ROWS_PER_CHUNK)
        ids: NDArray[Any] = rows.ids[chunk, field]
        row = np.arange(len(ids))
        if field in rows.lists:
            lists = rows.lists[field].take(ids)
            ids, row = lists.ids, np.repeat(row, lists.sizes)
        w = np.ones(len(row)) if weights is None else weights[chunk][row].astype(np.float64)
        counts += np.bincount(ids, w, minlength=size)
        clicks += np.bincount(ids, w * labels[chunk][row], minlength=size)
    return counts, np.divide(clicks, counts, out=np.zeros(size), where=counts > 0)
