"""Tables and batches of random numbers, for the tests of tables."""

from __future__ import annotations

from typing import Any

import numpy as np

import fm2
from fm2.training.tables import EmbeddingTable, Optimizer, minibatch

SIZES = [5, 1, 40, 700]
rng = np.random.default_rng(5)


def draw_ids(rows: int, sizes: list[int] = SIZES) -> np.ndarray:
    """Draw ids of which a few are frequent and many rare."""
    return np.stack([(rng.random(rows) ** 3 * size).astype(np.int32) for size in sizes], axis=1)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def make_table(dims: list[int], optimizer: Optimizer, sizes: list[int] = SIZES, **options: Any) -> EmbeddingTable:
    return EmbeddingTable(sizes, dims, optimizer, weights=normal(np.dot(sizes, dims)), **options)


def copy_of(table: EmbeddingTable, **options: Any) -> EmbeddingTable:
    return EmbeddingTable(table.sizes, table.dims, table.optimizer, weights=table.weights, **options)


def loaded(ids: np.ndarray, sizes: list[int] = SIZES, threads: int = 0) -> fm2._native.Minibatch:
    batch = minibatch(sizes)
    batch.load(ids, threads=threads)
    return batch


def rows_of_field(table: EmbeddingTable, field: int, array: np.ndarray | None = None) -> np.ndarray:
    """Return a view of one field's rows of the weights (or of another of the table's arrays): [size, dim]."""
    size, dim, offset = table.sizes[field], table.dims[field], table.offsets[field]
    return (table.weights if array is None else array)[offset : offset + size * dim].reshape(size, dim)


def look_up(table: EmbeddingTable, ids: np.ndarray) -> np.ndarray:
    rows = [np.concatenate([rows_of_field(table, f)[id] for f, id in enumerate(row)]) for row in ids]
    return np.array(rows).reshape(len(ids), table.width)


def summed(table: EmbeddingTable, ids: np.ndarray, gradient: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """Add up the gradients of every feature that occurs."""
    sums: dict[tuple[int, int], np.ndarray] = {}
    for row, slopes in zip(ids, gradient.astype(np.float64), strict=True):
        for f, id in enumerate(row):
            part = slopes[table.starts[f] : table.starts[f] + table.dims[f]]
            sums[f, id] = sums.get((f, id), 0) + part
    return sums
