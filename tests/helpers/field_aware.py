"""The native FFM, and the paper's equation 5 and the definition of Adagrad as float64 loops.

A field has any number of weighted values; a single-valued one has one value of weight 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from tests.helpers.batches import loaded
from tests.helpers.lists import Values, rows_of_values

from fm2._native import Ffm, FfmLayout
from fm2.data.rows import EncodedRows
from fm2.training.tables import Optimizer, adagrad, aligned_zeros

TILE = 32  # rows that are scored before the first of them updates a weight
Rows = EncodedRows | np.ndarray
Row = list[Values]


@dataclass
class Weights:
    """A model as the equation has it: v[i, j] are the vectors [size, dim] of field i's features for field j."""

    v: dict[tuple[int, int], np.ndarray]
    w: list[np.ndarray]
    bias: float

    def score(self, row: Row) -> float:
        """Follow equation 5; values of the same field do not interact."""
        result = self.bias
        for i, values in enumerate(row):
            for feature, weight in values:
                result += weight * self.w[i][feature]
        for i, j in combinations(range(len(row)), 2):
            for a, x in row[i]:
                for b, y in row[j]:
                    for k in range(self.v[i, j].shape[1]):
                        result += x * y * self.v[i, j][a, k] * self.v[j, i][b, k]
        return float(result)

    def loss(self, row: Row, label: float) -> float:
        return float(np.logaddexp(0, self.score(row)) - label * self.score(row))

    def pooled(self, values: Values, i: int, j: int) -> np.ndarray:
        """Return the vector of field i for field j: the weighted sum of its values' vectors."""
        total = np.zeros(self.v[i, j].shape[1])
        for feature, weight in values:
            total += weight * self.v[i, j][feature]
        return total


class Model:
    """The native model, and its weights in float64."""

    def __init__(self, sizes: list[int], dim: int, squares: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.sizes, self.dim = np.array(sizes, dtype=np.int32), dim
        self.layout = FfmLayout(self.sizes, dim)
        self.table, self.bias = aligned_zeros(self.layout.floats), np.array([0.25, squares], dtype=np.float32)
        self.native = Ffm(self.layout, self.table, self.bias)
        shape = (int(self.sizes.sum()), len(sizes) - 1, dim)
        vectors = rng.normal(0, dim**-0.5 / len(sizes) ** 0.5, shape).astype(np.float32)
        self.native.write(vectors, rng.normal(0, 0.3, shape[0]).astype(np.float32), squares)

    @property
    def weights(self) -> Weights:
        m, n = int(self.sizes.sum()), len(self.sizes)
        vectors, linear = np.empty((m, n - 1, self.dim), dtype=np.float32), np.empty(m, dtype=np.float32)
        self.native.read(vectors, linear)
        first = np.cumsum(self.sizes) - self.sizes
        v, w = {}, []
        for i in range(n):
            own = slice(first[i], first[i] + self.sizes[i])
            w.append(linear[own].astype(np.float64))
            for place, j in enumerate(j for j in range(n) if j != i):
                v[i, j] = vectors[own, place].astype(np.float64)
        return Weights(v, w, float(self.bias[0]))

    def score(self, rows: Rows, **options: object) -> np.ndarray:
        logits = np.empty(len(rows), dtype=np.float32)
        self.native.score(loaded(rows, self.sizes), logits, **options)
        return logits

    def step(
        self,
        rows: Rows,
        labels: np.ndarray,
        weights: np.ndarray | None = None,
        vectors: Optimizer | None = None,
        linear: Optimizer | None = None,
        **options: object,
    ) -> float:
        vectors, linear = vectors or adagrad(0.1), linear or adagrad(0.1)
        return self.native.step(loaded(rows, self.sizes), labels, weights, vectors, linear, **options)


def assert_close(native: Weights, literal: Weights, rtol: float = 2e-5) -> None:
    np.testing.assert_allclose(native.bias, literal.bias, rtol=rtol)
    for ours, theirs in zip(native.w, literal.w, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)
    for pair, vectors in literal.v.items():
        np.testing.assert_allclose(native.v[pair], vectors, rtol=rtol, atol=1e-6)


def literal_steps(
    model: Model,
    rows: Rows,
    labels: np.ndarray,
    row_weights: np.ndarray,
    rates: tuple[float, float],
    l2: tuple[float, float],
) -> tuple[Weights, float]:
    """Train a copy of the weights, a tile at a time, with sums of squares that begin as the model's do.

    A row updates its values one after the other; a value that occurs twice is updated twice.
    """
    now, start = model.weights, float(model.bias[1])
    v_squares = {pair: np.full(len(vectors), start) for pair, vectors in now.v.items()}
    w_squares, bias_squares, losses = [np.full(len(w), start) for w in now.w], start, 0.0
    everything = rows_of_values(EncodedRows.of(rows))
    for begin in range(0, len(everything), TILE):
        tile = slice(begin, begin + TILE)
        logits = [now.score(row) for row in everything[tile]]
        for row, label, weight, logit in zip(everything[tile], labels[tile], row_weights[tile], logits, strict=True):
            slope = weight * (1 / (1 + np.exp(-logit)) - label)
            losses += weight * (np.logaddexp(0, logit) - label * logit)
            bias_squares += slope**2
            now.bias -= rates[1] * slope / bias_squares**0.5
            for i, values in enumerate(row):
                for f, x in values:
                    g = slope * x + l2[1] * now.w[i][f]
                    w_squares[i][f] += g**2
                    now.w[i][f] -= rates[1] * g / w_squares[i][f] ** 0.5
            for i, j in combinations(range(len(row)), 2):
                first, second = now.pooled(row[i], i, j), now.pooled(row[j], j, i)
                for pair, values, partner in (((i, j), row[i], second), ((j, i), row[j], first)):
                    for f, x in values:
                        g = slope * x * partner + l2[0] * now.v[pair][f]
                        v_squares[pair][f] += (g**2).mean()
                        now.v[pair][f] -= rates[0] * g / v_squares[pair][f] ** 0.5
    return now, losses / row_weights.sum()
