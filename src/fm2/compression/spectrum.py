"""Field matrices through their spectrum: an FmFM at the cost of an FM.

The block matrix S is symmetric, so S ≈ Q Λ Qᵀ with r columns in Q, and 1/2 vᵀ S v ≈ 1/2 Σ λ (Σ z)², where z = Qᵀ v of
a feature alone can be had beforehand. Three things make a small r good enough. The error is measured where the data is:
what is cut is C^1/2 S C^1/2, for C the covariance of v, rows counting by p (1 - p), which is how much their logits
matter to the loss. The diagonal blocks, which S has not, may be anything: what they add to the form, 1/2 Σ λ z² of each
feature on its own, is taken off its linear weight. And of what is lost, E, only the deviations from the mean m of v are
lost indeed: 1/2 vᵀ E v = 1/2 (v - m)ᵀ E (v - m) + (E m)ᵀ v - 1/2 mᵀ E m, whose other parts are linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.compression.weights import Floats, Weights
from fm2.errors import Fm2Error
from fm2.evaluation.metrics import sigmoid
from fm2.models.registry import specs

Matrix = NDArray[np.float64]
ROUNDS, ENOUGH = 50, 1e-3  # of alternating; it stops where λ changes by less
LEAST = 1e-7  # of the largest variance: less is taken for as much
MOST_ROWS, ROWS_A_TIME = 200_000, 8192


@dataclass(frozen=True)
class Spectrum:
    """What takes S's place: the columns of Q by field, D × r, scaled so that only signs are left of the λ.

    What was lost of S adds to the linear part: the ``slopes`` by field times v, and a ``constant``.
    """

    vectors: Sequence[Floats]
    signs: Floats
    slopes: Sequence[Floats]
    constant: float

    def features(self, weights: Weights, field: int, some: slice) -> tuple[Floats, Floats]:
        """Give z and the linear weight of some features of a field, with which z interact in pairs alone."""
        table = weights.embeddings[field][some]
        return table @ self.vectors[field], weights.linear[field][some] + table @ self.slopes[field]


@dataclass(frozen=True)
class Moments:
    """Where the data is: the mean and the covariance of v."""

    mean: Matrix
    covariance: Matrix


def cut(weights: Weights, rank: int, moments: Moments | None = None) -> Spectrum:
    """Cut the spectrum of a model's field matrices at a rank; ``moments`` are guessed where they are not given.

    At full rank, the sum of the dimensions, the form is exact.
    """
    check_rank(weights, rank)
    form, ends = block_matrix(weights), np.cumsum(weights.dims)[:-1]
    moments = guess_moments(weights) if moments is None else moments
    if rank == len(form):
        values, vectors = np.linalg.eigh(form)
    else:
        values, vectors = _cut_where_the_data_is(form, weights.dims, rank, moments)
    lost = form - (vectors * values) @ vectors.T
    lost[_diagonal_blocks(weights.dims)] = 0
    slope = lost @ moments.mean
    return Spectrum(
        np.split((vectors * np.sqrt(np.abs(values))).astype(np.float32), ends),
        np.where(values < 0, -1, 1).astype(np.float32),
        np.split(slope.astype(np.float32), ends),
        -float(moments.mean @ slope) / 2,
    )


def check_rank(weights: Weights, rank: int) -> None:
    """Refuse a rank that a model's block matrix cannot have, and a model without one."""
    if not weights.spec.has_field_matrices:
        have = ", ".join(spec.name for spec in specs() if spec.has_field_matrices)
        raise Fm2Error(f"spectrum: {weights.name} has no field matrices; {have} have them")
    width = sum(weights.dims)
    if not 1 <= rank <= width:
        raise Fm2Error(f"spectrum: the rank is {rank}; it is a number from 1 to the sum of the dimensions, {width}")


def block_matrix(weights: Weights) -> Matrix:
    """Give S: the field matrices of all pairs, and zero between a field and itself."""
    ends = np.cumsum(weights.dims)
    form = np.zeros((ends[-1], ends[-1]))
    for i, j in _pairs(len(ends)):
        rows, columns = slice(ends[i] - weights.dims[i], ends[i]), slice(ends[j] - weights.dims[j], ends[j])
        form[rows, columns] = _matrix(weights, i, j)
        form[columns, rows] = form[rows, columns].T
    return form


def _pairs(fields: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(fields) for j in range(i + 1, fields)]


def _matrix(weights: Weights, i: int, j: int) -> Floats:
    if weights.spec.interaction == "constant":
        return np.diag(weights.signs)
    block = weights.blocks[i, j]
    return np.diag(block) if block.ndim == 1 else block


def guess_moments(weights: Weights) -> Moments:
    """Guess where the data is from how often each feature occurs, as if fields had nothing to do with each other."""
    width, begin = sum(weights.dims), 0
    mean, covariance = np.zeros(width), np.zeros((width, width))
    for field, table in enumerate(weights.embeddings):
        own, begin = slice(begin, begin + table.shape[1]), begin + table.shape[1]
        shares = weights.counts(field).astype(np.float64)
        shares /= shares.sum()
        mean[own] = shares @ table
        centered = table - mean[own]
        covariance[own, own] = (centered * shares[:, None]).T @ centered
    return Moments(mean, covariance)


def some_rows(ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Give as many rows, from all over, as tell enough of where the data is."""
    return np.asarray(ids[:: max(-(-len(ids) // MOST_ROWS), 1)])


def measure_moments(weights: Weights, ids: NDArray[np.int32]) -> Moments:
    """Measure where the data is over rows of ids, which count as much as their logits matter to the loss."""
    form, width, many = block_matrix(weights).astype(np.float32), sum(weights.dims), 0.0
    sums, products = np.zeros(width), np.zeros((width, width))
    for begin in range(0, len(ids), ROWS_A_TIME):
        rows, logits = _rows_and_logits(weights, form, ids[begin : begin + ROWS_A_TIME])
        p = sigmoid(logits)
        counted = (p * (1 - p)).astype(np.float32)
        many += float(counted.sum(dtype=np.float64))
        sums += counted @ rows
        products += (rows * counted[:, None]).T @ rows
    if not many:  # no rows
        return guess_moments(weights)
    mean = sums / many
    return Moments(mean, products / many - np.outer(mean, mean))


def exact_logits(weights: Weights, ids: NDArray[np.int32]) -> Floats:
    """Give the logits of rows of ids by the whole block matrix."""
    form = block_matrix(weights).astype(np.float32)
    some = [ids[begin : begin + ROWS_A_TIME] for begin in range(0, len(ids), ROWS_A_TIME)]
    return np.concatenate([np.empty(0, np.float32), *(_rows_and_logits(weights, form, part)[1] for part in some)])


def _rows_and_logits(weights: Weights, form: Floats, ids: NDArray[np.int32]) -> tuple[Floats, Floats]:
    rows = np.concatenate([table[ids[:, field]] for field, table in enumerate(weights.embeddings)], axis=1)
    logits = weights.bias + np.einsum("ij,ij->i", rows @ form, rows) / 2
    logits += sum(linear[ids[:, field]] for field, linear in enumerate(weights.linear))
    return rows, logits


def _cut_where_the_data_is(form: Matrix, dims: Sequence[int], rank: int, moments: Moments) -> tuple[Matrix, Matrix]:
    """Cut C^1/2 (S + B) C^1/2, take for B the cut's own diagonal blocks, and cut again; give λ and Q."""
    variances, axes = np.linalg.eigh(moments.covariance)
    if variances[-1] <= LEAST * (moments.mean @ moments.mean):  # rows all alike: any cut is right there
        variances = np.ones_like(variances)
    roots = np.sqrt(np.maximum(variances, LEAST * variances[-1]))
    root, inverse = (axes * roots) @ axes.T, (axes / roots) @ axes.T
    values, vectors = np.empty(0), np.empty((0, 0))
    free, places = form.copy(), _diagonal_blocks(dims)
    for _ in range(ROUNDS):
        every, directions = np.linalg.eigh(root @ free @ root)
        kept = np.argsort(-np.abs(every))[:rank]
        before, values, vectors = values, every[kept], inverse @ directions[:, kept]
        if len(before) and np.linalg.norm(values - before) < ENOUGH * np.linalg.norm(values):
            break
        free[places] = ((vectors * values) @ vectors.T)[places]
    return values, vectors


def _diagonal_blocks(dims: Sequence[int]) -> NDArray[np.bool_]:
    fields = np.repeat(np.arange(len(dims)), dims)
    return np.equal.outer(fields, fields)
