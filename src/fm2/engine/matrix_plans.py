"""Plans of FwFM, FvFM and FmFM: field matrices, with as many cached products as memory allows.

The embeddings of a row are concatenated in an order of the fields. Each field interacts with all preceding fields at
once: its pair terms are the inner product of ``M[p]ᵀ v`` and the preceding embeddings, where ``M[p]`` is the matrix
between the field and its predecessors. The product depends on the feature alone, so it can be cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.compression.weights import Floats, Weights
from fm2.engine.model_file import align
from fm2.engine.plans import DTYPES, FIELD_MATRICES, Dtype, Plan, RowBlock, Rows, common_sections, lookups


@dataclass(frozen=True)
class PrecedingMatrix:
    """The matrix between a field and all preceding fields, without the columns of pruned pairs.

    ``columns`` are the columns of the concatenated embeddings that it multiplies, in groups of eight; ``matrix`` is
    D × columns, or 1 × columns with the diagonals of its blocks if they are ``diagonal``.
    """

    columns: NDArray[np.int64]
    matrix: Floats
    diagonal: bool

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The contiguous ranges of the columns: begin and length."""
        gaps = np.flatnonzero(np.diff(self.columns) != 1) + 1
        return [(int(part[0]), len(part)) for part in np.split(self.columns, gaps) if len(part)]

    def products(self, embeddings: Floats) -> Floats:
        """Return ``M[p]ᵀ v`` for each embedding ``v``."""
        if self.diagonal:
            products: Floats = embeddings[:, self.columns % embeddings.shape[1]] * self.matrix
            return products
        return embeddings @ self.matrix


def preceding_matrices(weights: Weights, order: Sequence[int]) -> Iterator[PrecedingMatrix]:
    """Yield the matrix between each field and its predecessors, for fields in this order."""
    diagonal = not weights.spec.has_full_matrices
    for position, field in enumerate(order):
        rows = 1 if diagonal else weights.dims[field]
        blocks = [np.atleast_2d(weights.block(field, other)) for other in order[:position]]
        padding = np.zeros((rows, 8), np.float32)  # the last group of eight may extend beyond the predecessors
        matrix = np.concatenate([*blocks, padding], axis=1)
        columns = _cover_with_eights(np.flatnonzero(matrix.any(axis=0)))
        yield PrecedingMatrix(columns, matrix[:, columns], diagonal)


def _cover_with_eights(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cover sorted columns with as few groups of eight contiguous columns as possible.

    >>> _cover_with_eights(np.array([2, 4, 10, 17])).tolist()
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    """
    begins: list[int] = []
    for column in columns:
        if not begins or column >= begins[-1] + 8:
            begins.append(int(column))
    return (np.array(begins, np.int64)[:, None] + np.arange(8)).ravel()


def matrix_plan(weights: Weights, order: Sequence[int], cached: Sequence[int], dtype: Dtype, title: str) -> Plan:
    """Plan an FwFM, FvFM or FmFM; ``cached`` counts each field's features with cached products, in this ``order``."""
    matrices = list(preceding_matrices(weights, order))
    blocks: list[RowBlock] = []
    for field, count, matrix in zip(order, cached, matrices, strict=True):
        blocks += _row_blocks(weights, field, count, matrix)
    ranges = [(position, *part) for position, matrix in enumerate(matrices) for part in matrix.ranges]
    sections: dict[str, NDArray[Any]] = {
        **common_sections(weights, FIELD_MATRICES, dtype, diagonal=matrices[0].diagonal),
        "order": np.array(order, np.int32),
        "dims": np.array([weights.dims[field] for field in order], np.int32),
        "cached": np.array(cached, np.int32),
        "ranges": np.array(ranges, np.int32),
        "matrices": np.concatenate([_aligned(matrix.matrix) for matrix in matrices]),
    }
    return Plan(title, dtype, sections, blocks)


def _row_blocks(weights: Weights, field: int, cached: int, matrix: PrecedingMatrix) -> list[RowBlock]:
    """Return the rows of the features with cached products, and of those without."""
    table, linear = weights.embeddings[field], weights.linear[field]
    dim = table.shape[1]

    def with_products(ids: slice) -> Rows:
        return matrix.products(table[ids]), table[ids], linear[ids]

    def without_products(ids: slice) -> Rows:
        return None, table[cached:][ids], linear[cached:][ids]

    return [
        RowBlock(cached, len(matrix.columns), dim, with_products),
        RowBlock(len(linear) - cached, 0, dim, without_products),
    ]


def _aligned(matrix: Floats) -> Floats:
    """Flatten a matrix and pad it to complete cache lines."""
    return np.pad(matrix.ravel(), (0, align(matrix.nbytes) // 4 - matrix.size))


def field_orders(weights: Weights) -> dict[str, list[int]]:
    """Return the orders of the fields that are worth trying, by name.

    By dimension, each pair costs the smaller of its two dimensions (section 4.3 of the paper). By size, features of
    large fields, which are rarely in a cache, have short rows; only the few features of small fields have long ones. In
    both orders, fields with many lookups per row come earlier: a pair costs the dimension of its earlier field for
    every lookup of its later field.
    """
    fields, sizes, values = range(len(weights.sizes)), weights.sizes, lookups(weights)
    return {
        "by dimension": sorted(fields, key=lambda field: (weights.dims[field] / values[field], -sizes[field])),
        "by size": sorted(fields, key=lambda field: -sizes[field] * values[field]),
    }


def cached_features(weights: Weights, order: Sequence[int], dtype: Dtype, memory: float) -> list[int]:
    """Return how many features of each field get cached products if these may take ``memory`` bytes.

    The features are chosen by their frequency times the arithmetic that a product saves, per byte that it takes. The
    sum of a list's embeddings is multiplied only once, so products of features in long lists save nothing.
    """
    benefits = []
    costs = []
    values = lookups(weights)
    for field, matrix in zip(order, preceding_matrices(weights, order), strict=True):
        dim, products = weights.dims[field], len(matrix.columns)
        saved = dim / values[field] - 1 if weights.schema.fields[field].is_list else dim
        cost = _native.row_bytes(DTYPES[dtype], products, dim) - _native.row_bytes(DTYPES[dtype], 0, dim)
        counts = np.minimum.accumulate(weights.counts(field))  # ids are sorted by frequency, or nearly so
        benefits.append(counts * (saved * products / cost if cost else 0.0))
        costs.append(np.full(len(counts), float(cost)))
    positions = np.repeat(np.arange(len(order)), [len(part) for part in benefits])
    benefit, cost_of = np.concatenate(benefits), np.concatenate(costs)
    best = np.argsort(-benefit, kind="stable")
    best = best[(benefit[best] > 0) | (cost_of[best] == 0)]
    chosen = best[np.cumsum(cost_of[best]) <= memory]
    return [int(count) for count in np.bincount(positions[chosen], minlength=len(order))]
