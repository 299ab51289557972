"""Cut the spectrum of the field matrices: an FmFM at the cost of an FM.

The block matrix S is symmetric, so S ≈ Q Λ Qᵀ with r columns in Q, and 1/2 vᵀ S v ≈ 1/2 Σ λ (Σ z)², where z = Qᵀ v of
each feature is computed in advance. Three ideas make a small r accurate:

- The error is measured where the data is. What is cut is C^1/2 S C^1/2, where C is the covariance of v over rows
  weighted by p (1 - p), the effect of their logits on the loss.
- The diagonal blocks of S are free. What they add, 1/2 Σ λ z² of each field alone, is subtracted again: from the
  linear weight of the feature or, in a list field, at prediction.
- The error E matters only for deviations from the mean m of v, because
  1/2 vᵀ E v = 1/2 (v - m)ᵀ E (v - m) + (E m)ᵀ v - 1/2 mᵀ E m, and bias and linear terms take over the last two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.compression.moments import SMALLEST, Matrix, Moments, pooled, power_and_inverse, weighted_moments
from fm2.compression.weights import Floats, Weights
from fm2.data.dataset import Split
from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.evaluation.metrics import sigmoid
from fm2.models.registry import specs

ROUNDS, CONVERGED = 50, 1e-3  # of the alternation; it ends when the eigenvalues change by less
MAX_ROWS, ROWS_PER_CHUNK = 200_000, 8192


@dataclass(frozen=True)
class Spectrum:
    """A replacement for S: the columns of Q by field, D × r, scaled so that only the signs of the λ remain.

    The part of S that was lost adds linear terms, the ``slopes`` by field times v, and a ``constant``.
    """

    vectors: Sequence[Floats]
    signs: Floats
    slopes: Sequence[Floats]
    constant: float

    def features(self, weights: Weights, field: int, rows: slice) -> tuple[Floats, Floats]:
        """Return z and the linear weight of a field's features, for pairs of different fields only."""
        table = weights.embeddings[field][rows]
        return table @ self.vectors[field], weights.linear[field][rows] + table @ self.slopes[field]


def cut(weights: Weights, rank: int, moments: Moments | None = None) -> Spectrum:
    """Cut the spectrum of a model's field matrices at a rank.

    Without ``moments`` they are estimated from the features' frequencies. At full rank, the sum of the dimensions, the
    result is exact.
    """
    check_rank(weights, rank)
    S, ends = block_matrix(weights), np.cumsum(weights.dims)[:-1]
    moments = estimate_moments(weights) if moments is None else moments
    if rank == len(S):
        values, vectors = np.linalg.eigh(S)
    else:
        values, vectors = _cut_weighted(S, weights.dims, rank, moments)
    lost = S - (vectors * values) @ vectors.T
    lost[_diagonal_blocks(weights.dims)] = 0
    slope = lost @ moments.mean
    return Spectrum(
        np.split((vectors * np.sqrt(np.abs(values))).astype(np.float32), ends),
        np.where(values < 0, -1, 1).astype(np.float32),
        np.split(slope.astype(np.float32), ends),
        -float(moments.mean @ slope) / 2,
    )


def check_rank(weights: Weights, rank: int) -> None:
    """Raise an error if a model has no field matrices, or its block matrix cannot have this rank."""
    if not weights.spec.has_field_matrices:
        expected = ", ".join(spec.name for spec in specs() if spec.has_field_matrices)
        raise Fm2Error(f"spectrum: expected {expected}, got {weights.name}, which has no field matrices")
    width = sum(weights.dims)
    if not 1 <= rank <= width:
        raise Fm2Error(f"spectrum: rank must be between 1 and the sum of the dimensions, {width}, got {rank}")


def assemble_blocks(dims: Sequence[int], matrix: Callable[[int, int], NDArray[Any]]) -> Matrix:
    """Return S: ``matrix(i, j)`` for every pair of fields i < j, its transpose for j, i, and zeros on the diagonal."""
    ends = np.cumsum(dims)
    S = np.zeros((ends[-1], ends[-1]))
    for i, j in itertools.combinations(range(len(dims)), 2):
        S[ends[i] - dims[i] : ends[i], ends[j] - dims[j] : ends[j]] = matrix(i, j)
    return S + S.T


def block_matrix(weights: Weights) -> Matrix:
    """Return S of a model."""

    def matrix(i: int, j: int) -> Floats:
        block = weights.signs if weights.spec.interaction == "constant" else weights.blocks[i, j]
        return np.diag(block) if block.ndim == 1 else block

    return assemble_blocks(weights.dims, matrix)


def block_diagonal(blocks: Sequence[Matrix]) -> Matrix:
    """Return the matrix with these blocks on its diagonal, and zeros elsewhere."""
    matrix = np.zeros(np.sum([block.shape for block in blocks], axis=0))
    row = column = 0
    for block in blocks:
        matrix[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return matrix


def estimate_moments(weights: Weights) -> Moments:
    """Estimate the moments of v from how often each feature occurs, as if fields were independent.

    The lengths of lists are unknown here: a list field counts as if it had one value in every row.
    """
    fields = [weighted_moments(table, weights.counts(field)) for field, table in enumerate(weights.embeddings)]
    covariance = block_diagonal([moments.covariance for moments in fields])
    return Moments(np.concatenate([moments.mean for moments in fields]), covariance)


def sample_rows(split: Split) -> tuple[EncodedRows, Floats | None]:
    """Return every n-th row, as many as are needed to measure the moments, and the weights of these rows, if any."""
    chosen = slice(None, None, max(-(-len(split) // MAX_ROWS), 1))
    return split.encoded[chosen], None if split.weights is None else np.asarray(split.weights[chosen])


def measure_moments(weights: Weights, encoded: EncodedRows, row_weights: Floats | None = None) -> Moments:
    """Measure the moments of v over encoded rows, each weighted by the effect of its logit on the loss."""
    width = sum(weights.dims)
    total, sums, products = 0.0, np.zeros(width), np.zeros((width, width))
    begin = 0
    for rows, logits in _rows_and_logits(weights, encoded):
        p = sigmoid(logits)
        effects = (p * (1 - p)).astype(np.float32)
        if row_weights is not None:
            effects *= row_weights[begin : begin + len(rows)]
        begin += len(rows)
        total += float(effects.sum(dtype=np.float64))
        sums += effects @ rows
        products += (rows * effects[:, None]).T @ rows
    if not total:  # no rows
        return estimate_moments(weights)
    mean = sums / total
    return Moments(mean, products / total - np.outer(mean, mean))


def exact_logits(weights: Weights, encoded: EncodedRows) -> Floats:
    """Return the logits of encoded rows, computed with the complete block matrix."""
    return np.concatenate([np.empty(0, np.float32), *(logits for _, logits in _rows_and_logits(weights, encoded))])


def _rows_and_logits(weights: Weights, encoded: EncodedRows) -> Iterator[tuple[Floats, Floats]]:
    """Yield v and the logits of chunks of rows."""
    S = block_matrix(weights).astype(np.float32)
    for begin in range(0, len(encoded), ROWS_PER_CHUNK):
        chunk = encoded[begin : begin + ROWS_PER_CHUNK]
        rows = np.concatenate(_look_up(weights.embeddings, chunk), axis=1)
        logits = weights.bias + np.einsum("ij,ij->i", rows @ S, rows) / 2
        logits += sum(_look_up(weights.linear, chunk))
        yield rows, logits


def _look_up(tables: Sequence[Floats], rows: EncodedRows) -> list[Floats]:
    """Return each field's part of the rows; list fields have the weighted sums of their features' weights."""
    columns = enumerate(zip(tables, rows.ids.T, strict=True))
    return [
        pooled(table, rows.lists[field].take(column)) if field in rows.lists else table[column]
        for field, (table, column) in columns
    ]


def _cut_weighted(S: Matrix, dims: Sequence[int], rank: int, moments: Moments) -> tuple[Matrix, Matrix]:
    """Return λ and Q: cut C^1/2 (S + B) C^1/2, use the result's diagonal blocks as B, and repeat."""
    negligible = SMALLEST * float(moments.mean @ moments.mean)  # all rows are equal: any cut is exact for them
    root, inverse = power_and_inverse(moments.covariance, 0.5, negligible)
    values, vectors = np.empty(0), np.empty((0, 0))
    target, diagonal = S.copy(), _diagonal_blocks(dims)
    for _ in range(ROUNDS):
        eigenvalues, directions = np.linalg.eigh(root @ target @ root)
        kept = np.argsort(-np.abs(eigenvalues))[:rank]
        previous, values, vectors = values, eigenvalues[kept], inverse @ directions[:, kept]
        if len(previous) and np.linalg.norm(values - previous) < CONVERGED * np.linalg.norm(values):
            break
        target[diagonal] = ((vectors * values) @ vectors.T)[diagonal]
    return values, vectors


def _diagonal_blocks(dims: Sequence[int]) -> NDArray[np.bool_]:
    fields = np.repeat(np.arange(len(dims)), dims)
    return np.equal.outer(fields, fields)
