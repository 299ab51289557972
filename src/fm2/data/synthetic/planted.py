"""The planted model: the field-matrixed model (FmFM, the paper's equation 7) that generates the labels of a log.

The true click probability of a row is sigmoid(intercept + linear + 1/2 vᵀ S v). A list field contributes the pooled
weights and embeddings of its values. The label is drawn with exactly this probability; there is no other noise. The
probability depends on the features of the row alone, so no model has a better expected AUC or log loss than the true
probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fm2.data.synthetic.columns import Column, Floats, Ints, plan_columns, solve
from fm2.data.synthetic.lists import Cells, ListColumn, plan_lists

DIM = 4  # dimension of the planted embeddings
CLICK_RATE = 0.25
TRUE_AUC = 0.81
PAIR_SHARE = 0.45  # share of the pair terms in the variance of the logits; the linear part has the remainder

LIST_STRENGTH, LIST_IMPORTANCE = 1.5, np.e  # of list fields, in linear and pair terms; others have 1 on average

CALIBRATION_ROWS = 1 << 16

# The parts of a field matrix, before the importance of its two fields: a multiple of the identity common to all pairs
# (FM can represent only this part), a multiple per pair (FwFM), a diagonal (FvFM) and a full matrix (FmFM).
COMMON, SCALAR, DIAGONAL, FULL = 0.5, 0.45, 0.6, 0.45

# Parameters are bounded multiples of 1/GRID, so that every product and sum is exact in float64. The scores therefore do
# not depend on the order of additions, that is, on the number of threads or the BLAS library.
GRID = 32
VALUE_LIMIT = 4
MATRIX_LIMIT = 64


@dataclass(frozen=True)
class Planted:
    """A planted model: a weight and an embedding per feature, a matrix per pair of fields, and the scale of both parts.

    The features of field i are numbered from ``starts[i]`` on, beginning with the missing cell. The list fields are the
    last fields.
    """

    columns: list[Column]
    starts: Ints
    weights: Floats  # features
    embeddings: Floats  # features × DIM
    matrix: Floats  # S, the symmetric block matrix of all field matrices, with zero diagonal blocks
    linear_std: float = 1.0
    pair_scale: float = 1.0
    intercept: float = 0.0
    lists: list[ListColumn] = field(default_factory=list)

    def draw(self, rows: int, rng: np.random.Generator) -> Ints:
        """Draw the features of rows: an array of rows × fields."""
        uniform = rng.random((len(self.columns), rows))
        features = np.empty((rows, len(self.columns)), np.int64)
        for i, column in enumerate(self.columns):
            features[:, i] = column.draw(uniform[i]) + self.starts[i]
        return features

    def draw_lists(self, rows: int, rng: np.random.Generator) -> list[Cells]:
        """Draw the cells of the list fields of rows."""
        return [column.draw(rows, rng) for column in self.lists]

    def linear(self, features: Ints, lists: Sequence[Cells] = ()) -> Floats:
        """Return the linear part of the logit of each row."""
        sums: Floats = self.weights.take(features).sum(1)
        for pooled in self._pooled(self.weights[:, None], lists):
            sums += pooled[:, 0]
        return self.linear_std * sums

    def pairs(self, features: Ints, lists: Sequence[Cells] = ()) -> Floats:
        """Return the pair terms of the logit of each row in block form, 1/2 vᵀ S v."""
        v = self.embeddings.take(features, axis=0).reshape(len(features), -1)
        v = np.concatenate([v, *self._pooled(self.embeddings, lists)], axis=1) if lists else v
        products: Floats = np.einsum("rd,rd->r", v @ self.matrix, v)
        return self.pair_scale / 2 * products

    def _pooled(self, table: Floats, lists: Sequence[Cells]) -> list[Floats]:
        """Return the pooled rows of a table for each list field."""
        starts = self.starts[len(self.columns) :].tolist()
        return [cells.pooled(table[start:]) for cells, start in zip(lists, starts, strict=True)] if lists else []

    def probabilities(self, features: Ints, lists: Sequence[Cells] = ()) -> Floats:
        """Return the true click probability of each row."""
        return sigmoid(self.intercept + self.linear(features, lists) + self.pairs(features, lists))


def plant(
    fields: int,
    features: int,
    rng: np.random.Generator,
    click_rate: float = CLICK_RATE,
    multivalued: int = 0,
    values: int = 10,
    weighted: bool = False,
) -> Planted:
    """Draw a model at random, and scale it to a click rate and the AUC of real logs.

    ``multivalued`` list fields with ``values`` values on average come on top of the ``fields``; all together have
    ``features`` values.
    """
    size = features // (fields + multivalued)
    columns = plan_columns(fields, features - multivalued * size, rng)
    return plant_columns(columns, plan_lists(multivalued, size, values, weighted, rng), rng, click_rate)


def plant_columns(
    columns: list[Column], lists: list[ListColumn], rng: np.random.Generator, click_rate: float = CLICK_RATE
) -> Planted:
    """Draw a model of these columns at random, and scale it like :func:`plant`."""
    fields, multivalued = len(columns), len(lists)
    total = fields + multivalued
    all_columns = columns + [column.column for column in lists]
    strengths = rng.lognormal(0, 0.6, total)
    strengths[fields:] = LIST_STRENGTH
    starts = np.cumsum([0] + [column.size + 1 for column in all_columns])
    weights, embeddings = np.empty(starts[-1]), np.empty((starts[-1], DIM))
    for start, column, strength in zip(starts, all_columns, strengths, strict=False):
        standard = _standard_values(column, rng)
        weights[start : start + len(standard)] = standard[:, 0] * strength
        embeddings[start : start + len(standard)] = standard[:, 1:]
    grids = (_to_grid(weights), _to_grid(embeddings), _to_grid(_field_matrices(total, rng, multivalued)))
    return _calibrate(Planted(columns, starts[:-1], *grids, lists=lists), rng, click_rate)


def expected_auc(probabilities: Floats, rows: NDArray[np.integer] | int = 1) -> float:
    """Return the expected AUC of true probabilities in increasing order, where ``rows`` rows have each of them."""
    clicks = probabilities * rows
    others = (1 - probabilities) * rows
    below = np.cumsum(others) - others / 2
    return float((clicks * below).sum() / (clicks.sum() * others.sum()))


def sigmoid(logits: Floats) -> Floats:
    """Turn logits into probabilities."""
    return 1 / (1 + np.exp(-logits))


def _to_grid(values: Floats) -> Floats:
    return np.rint(values * GRID) / GRID


def _standard_values(column: Column, rng: np.random.Generator) -> Floats:
    """Draw a weight and an embedding for each value of a column, with mean 0 and variance 1 over the rows of a log.

    Because of mean 0, the term of a pair carries no information about either field alone: only a model with
    interactions can learn it.
    """
    share = column.probabilities()[:, None]
    values: Floats = rng.standard_normal((len(share), 1 + DIM))
    values -= (share * values).sum(0)
    values /= np.sqrt((share * values**2).sum(0))
    np.clip(values, -VALUE_LIMIT, VALUE_LIMIT, out=values)
    values -= (share * values).sum(0)
    return values


def _field_matrices(fields: int, rng: np.random.Generator, multivalued: int = 0) -> Floats:
    """Draw S. The importance of fields differs by a factor of 50, so that most pairs have almost no effect.

    All pairs of important fields have different matrices. If the strong pairs were few and formed no cycle, a model
    with scalars could absorb the matrices into the embeddings and be equally good.
    """
    pairs = (fields, fields)
    importance = np.exp(rng.permutation(np.linspace(-2, 2, fields)))
    importance[fields - multivalued :] = LIST_IMPORTANCE
    scalars = COMMON + SCALAR * rng.standard_normal((*pairs, 1, 1))
    diagonals = scalars + DIAGONAL * rng.standard_normal((*pairs, DIM, 1))
    matrices = diagonals * np.eye(DIM) + FULL * rng.standard_normal((*pairs, DIM, DIM)) / np.sqrt(DIM)
    matrices *= np.outer(importance, importance)[..., None, None]
    matrices[np.tril_indices(fields)] = 0
    upper: Floats = matrices.transpose(0, 2, 1, 3).reshape(fields * DIM, fields * DIM)
    upper *= MATRIX_LIMIT / np.abs(upper).max()
    return upper + upper.T


def _calibrate(model: Planted, rng: np.random.Generator, click_rate: float) -> Planted:
    """Scale both parts to their shares of the variance and to the target AUC, and fit the intercept."""
    rows = CALIBRATION_ROWS // 16
    samples = [(model.draw(rows, rng), model.draw_lists(rows, rng)) for _ in range(16)]
    linear, pairs = (np.concatenate([part(*sample) for sample in samples]) for part in (model.linear, model.pairs))
    linear_std, pair_scale = np.sqrt(1 - PAIR_SHARE) / linear.std(), np.sqrt(PAIR_SHARE) / pairs.std()
    logits = np.sort(linear_std * linear + pair_scale * pairs)[4::8]  # every eighth logit is enough

    def intercept(scale: float) -> float:
        return solve(lambda shift: float(sigmoid(scale * logits + shift).mean()), click_rate, -50, 50)

    scale = solve(lambda scale: expected_auc(sigmoid(scale * logits + intercept(scale))), TRUE_AUC, 0, 10)
    return replace(model, linear_std=scale * linear_std, pair_scale=scale * pair_scale, intercept=intercept(scale))
