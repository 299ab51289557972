"""Field matrices through their spectrum: an FmFM at the cost of an FM.

The block matrix S is symmetric, so S ≈ Q Λ Qᵀ with r columns in Q, and 1/2 vᵀ S v ≈ 1/2 Σ λ (Σ z)², where z = Qᵀ v of
a feature alone can be had beforehand. Two things make a small r good enough. The error is measured where the data is:
what is cut is C^1/2 S C^1/2 for C = E[v vᵀ]. And the diagonal blocks, which S has not, may be anything: what they add
to the form, 1/2 Σ λ z² of each feature on its own, is taken off its linear weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.compression.weights import Floats, Weights
from fm2.errors import Fm2Error

Matrix = NDArray[np.float64]
ROUNDS, ENOUGH = 50, 1e-3  # of alternating; it stops where λ changes by less
LEAST = 1e-7  # of the largest variance: less is taken for as much
ROWS_A_TIME = 8192


@dataclass(frozen=True)
class Spectrum:
    """What takes S's place: the columns of Q by field, D × r, scaled so that only signs are left of the λ."""

    vectors: Sequence[Floats]
    signs: Floats

    def features(self, weights: Weights, field: int, some: slice) -> tuple[Floats, Floats]:
        """Give z and the linear weight of some features of a field."""
        z = weights.embeddings[field][some] @ self.vectors[field]
        return z, weights.linear[field][some] - np.square(z) @ self.signs / 2


def cut(weights: Weights, rank: int, moments: Matrix | None = None) -> Spectrum:
    """Cut the spectrum of a model's field matrices at a rank; ``moments`` is E[v vᵀ], guessed where it is not given.

    At full rank, the sum of the dimensions, the form is exact.
    """
    if weights.name not in ("fm", "fwfm", "fvfm", "fmfm"):
        raise Fm2Error(f"spectrum: {weights.name} has no field matrices; fm, fwfm, fvfm and fmfm have them")
    width = sum(weights.dims)
    if not 1 <= rank <= width:
        raise Fm2Error(f"spectrum: the rank is {rank}; it is a number from 1 to the sum of the dimensions, {width}")
    form = block_matrix(weights)
    if rank == width:
        values, vectors = np.linalg.eigh(form)
    else:
        moments = guess_moments(weights) if moments is None else moments
        values, vectors = _cut_where_the_data_is(form, weights.dims, rank, moments)
    scaled = (vectors * np.sqrt(np.abs(values))).astype(np.float32)
    return Spectrum(np.split(scaled, np.cumsum(weights.dims)[:-1]), np.sign(values).astype(np.float32))


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
    if weights.name == "fm":
        return np.eye(weights.dims[0], dtype=np.float32)
    block = weights.blocks[i, j]
    return np.diag(block) if block.ndim == 1 else block


def guess_moments(weights: Weights) -> Matrix:
    """Guess E[v vᵀ] from how often each feature occurs, as if fields had nothing to do with each other."""
    ends = np.cumsum(weights.dims)
    means, moments = [], []
    for field, table in enumerate(weights.embeddings):
        shares = weights.counts(field).astype(np.float64)
        shares /= shares.sum()
        means.append(shares @ table)
        moments.append((table * shares[:, None]).T.astype(np.float64) @ table)
    mean = np.concatenate(means)
    found = np.outer(mean, mean)
    for end, dim, moment in zip(ends, weights.dims, moments, strict=True):
        found[end - dim : end, end - dim : end] = moment
    return found


def measure_moments(weights: Weights, ids: NDArray[np.int32]) -> Matrix:
    """Measure E[v vᵀ] over rows of ids."""
    width = sum(weights.dims)
    total = np.zeros((width, width))
    for begin in range(0, len(ids), ROWS_A_TIME):
        some = ids[begin : begin + ROWS_A_TIME]
        rows = np.concatenate([table[some[:, field]] for field, table in enumerate(weights.embeddings)], axis=1)
        total += (rows.T @ rows).astype(np.float64)
    return total / max(len(ids), 1)


def _cut_where_the_data_is(form: Matrix, dims: Sequence[int], rank: int, moments: Matrix) -> tuple[Matrix, Matrix]:
    """Cut C^1/2 (S + B) C^1/2, take for B the cut's own diagonal blocks, and cut again; give λ and Q."""
    variances, axes = np.linalg.eigh(moments)
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
