"""Tree fields in training: shallow models are blended with the trees, and networks learn coarse buckets of their score.

A model that learns from the trees' predictions trusts them too little or too much: on several logs, FmFM with the
buckets as one more field was worse than the trees alone. A model that never sees them makes other errors, so
the weighted mean of both logits is better than either. The share of the trees is fitted on the validation rows. The
result is again a model of the same kind: its weights are scaled, and the buckets have linear weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2.artifacts.array_parts import Values, read_part, with_parts
from fm2.artifacts.arrays import Saved
from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.data.rows import EncodedRows, Lists
from fm2.data.vocabulary import Vocabulary
from fm2.evaluation.metrics import sigmoid
from fm2.models import FlatEmbedding, Model
from fm2.schema import Schema
from fm2.training import inputs

if TYPE_CHECKING:
    from fm2.training.run import Run

Floats = NDArray[np.float64]

LINEAR = "linear"  # the table of weights per feature
COARSE_BUCKETS = 20  # of models that are not blended; with 200, the log loss of DeepFM on adult was .2752, not .2720
LARGEST_SHARE = 0.99  # a share of 1 would leave nothing of the model that a warm start could continue
MOST_STEPS, PRECISION = 50, 1e-6  # of fitting the share


class TreeFields:
    """What training does with tree fields; this class leaves them as they are."""

    share: float | None = None  # of the trees in the logit
    is_fixed = False  # whether the share stays as it is

    def seen(self, rows: EncodedRows) -> EncodedRows:
        """Return rows as the model sees them in training."""
        return rows

    def blend(
        self, logits: NDArray[np.float32], rows: EncodedRows, labels: NDArray[Any], weights: NDArray[Any] | None
    ) -> Floats:
        """Return the final logits of rows that the model scored as :meth:`seen`; fit the share unless it is fixed."""
        return logits.astype(np.float64)

    def finish(self, weights: Saved) -> Saved:
        """Return the weights of a model that sees the tree fields as they are."""
        return weights

    def begin(self, model: Model) -> None:
        """Turn a model with finished weights back into one that can be trained."""


def make_tree_fields(
    dataset: Dataset,
    vocabularies: Sequence[Vocabulary],
    model: Model,
    settings: Settings,
    row_weights: NDArray[np.float32] | None = None,
) -> TreeFields:
    """Return what a training does with its tree fields."""
    scores = tree_scores(dataset.schema, vocabularies)
    if not scores or any(list(table.field_sizes) != model.field_sizes for table in model.tables.values()):
        return TreeFields()
    if not model.spec.blends(model.config):
        return CoarseTrees(model.tables, scores)
    # Weights of clicks shift the model's logits, and those of the trees have to follow.
    unweighted = inputs.click_log_odds(dataset, 1.0, None)
    shift = inputs.click_log_odds(dataset, settings.positive_weight, row_weights) - unweighted
    return BlendedTrees(model, {index: own + shift for index, own in scores.items()})


def tree_scores(schema: Schema, vocabularies: Sequence[Vocabulary]) -> dict[int, Floats]:
    """Return the scores of the buckets of each tree field, by its index."""
    return {index: bucket_scores(vocabularies[index]) for index, field in enumerate(schema.fields) if field.trees}


def bucket_scores(vocabulary: Vocabulary) -> Floats:
    """Return the mean logit in each bucket of a tree field; the unknown feature, which never occurs, has their mean."""
    scores = np.array([float(value) for value in vocabulary.values()])
    return np.concatenate([[scores.mean()], scores])


def mean_scores(scores: Mapping[int, Floats], rows: EncodedRows) -> Floats:
    """Return the mean of the tree fields' scores of each row."""
    total: Floats = sum((own[rows.ids[:, field]] for field, own in scores.items()), np.zeros(len(rows)))
    return total / len(scores)


def with_and_without_trees(run: Run, rows: EncodedRows) -> tuple[Floats, Floats]:
    """Return the logits of a run that is blended with trees, and those of its model without them."""
    scores = tree_scores(run.encoder.schema, run.encoder.vocabularies)
    trees = {field: _bucket_weights(run.model, field) for field in scores}
    blended = run.logits(rows).astype(np.float64)
    return blended, (blended - len(trees) * mean_scores(trees, rows)) / (1 - tree_share(run.model, scores))


def tree_share(model: Model, scores: Mapping[int, Floats]) -> float:
    """Return the share of the trees in a finished model: the slope of its buckets' weights over their scores.

    Sampled negatives and weighted clicks shift the weights, but do not change the slope.
    """
    slopes = []
    for field, own in scores.items():
        centered = own - own.mean()
        slopes.append(float(_bucket_weights(model, field) @ centered / max(centered @ centered, 1e-12)))
    return min(max(sum(slopes), 0.0), LARGEST_SHARE)


def _bucket_weights(model: Model, field: int) -> Floats:
    weights: Floats = model.tables[LINEAR].rows(field)[:, 0].double().numpy().copy()
    return weights


class BlendedTrees(TreeFields):
    """The model does not see the tree fields. Its logit z and the trees' logit s become (1 - share) z + share s.

    >>> from fm2.models import LR
    >>> trees = BlendedTrees(LR([3, 2]), {1: np.array([0.0, 2.0])})
    >>> rows = EncodedRows(np.array([[1, 1], [2, 1], [1, 1]], np.int32))
    >>> trees.blend(np.array([-3, -3, -3], np.float32), rows, np.array([1, 0, 1]), None).round(3).tolist()
    [0.693, 0.693, 0.693]
    >>> round(trees.share, 3)
    0.739
    """

    share: float = 0.0

    def __init__(self, model: Model, scores: Mapping[int, Floats]) -> None:
        self._scores, self._tables, self._exponents = scores, model.tables, model.spec.logit_exponents
        self._hidden = {index: Lists.of([[]] * len(own)) for index, own in scores.items()}
        self._started: Mapping[int, Floats] = {}  # the buckets' weights in a model to start from

    def seen(self, rows: EncodedRows) -> EncodedRows:
        # The ids of the buckets become the numbers of lists, which are all empty. Nothing is copied.
        return EncodedRows(rows.ids, {**rows.lists, **self._hidden})

    def blend(
        self, logits: NDArray[np.float32], rows: EncodedRows, labels: NDArray[Any], weights: NDArray[Any] | None
    ) -> Floats:
        own = logits.astype(np.float64)
        if not self.is_fixed:
            self.share = fit_share(own, mean_scores(self._scores, rows), labels, weights)
        buckets = self._bucket_weights()
        return (1 - self.share) * own + len(buckets) * mean_scores(buckets, rows)

    def _bucket_weights(self) -> Mapping[int, Floats]:
        """Return the linear weights of the buckets of each tree field."""
        if self.is_fixed:
            return self._started
        return {field: self.share / len(self._scores) * own for field, own in self._scores.items()}

    def finish(self, weights: Saved) -> Saved:
        finished: dict[str, Any] = {}
        for name, values in weights.items():
            table = self._tables.get(name.removesuffix(".weight"))
            parts = {} if table is None else self._parts(table, name.startswith(LINEAR))
            finished[name] = with_parts(values, (1 - self.share) ** self._exponents.get(name, 0.0), parts)
        return finished

    def _parts(self, table: FlatEmbedding, is_linear: bool) -> dict[int, NDArray[np.float32]]:
        """Return the weights of the tree fields in a table, by the position where they begin."""
        weights = self._bucket_weights().items()
        if is_linear:
            return {table.offsets[field]: own.astype(np.float32) for field, own in weights}
        return {table.offsets[field]: np.zeros(len(own) * table.dims[field], np.float32) for field, own in weights}

    @torch.no_grad()
    def begin(self, model: Model) -> None:
        self.share = tree_share(model, self._scores)
        self._started = {field: _bucket_weights(model, field) for field in self._scores}
        for name, value in model.learned().items():
            value /= (1 - self.share) ** self._exponents.get(name, 0.0)
        for index in self._scores:
            model.tables[LINEAR].rows(index).zero_()


def fit_share(own: Floats, trees: Floats, labels: NDArray[Any], weights: NDArray[Any] | None) -> float:
    """Return the share of the trees with the lowest log loss, which is convex in it.

    A logistic regression on both logits would also fit the level and the confidence of the rows, which may be later
    than the training rows. The ratio of its coefficients alone is no share either: with trees that know little, the
    blended logit was worse than the model's.
    """
    difference = trees - own
    weighted = difference * (1.0 if weights is None else np.asarray(weights))

    def derivatives(share: float) -> tuple[float, float]:
        """Return the first and second derivative of the loss, as sums: in dot products, BLAS would use all cores."""
        probabilities = sigmoid(own + share * difference)
        curvatures = probabilities * (1 - probabilities) * difference
        return float(((probabilities - labels) * weighted).sum()), float((curvatures * weighted).sum())

    low, high = 0.0, LARGEST_SHARE
    if derivatives(low)[0] >= 0:
        return low
    if derivatives(high)[0] <= 0:
        return high
    share = (low + high) / 2
    for _ in range(MOST_STEPS):  # Newton's method, or bisection where it would leave the interval
        slope, curvature = derivatives(share)
        low, high = (share, high) if slope < 0 else (low, share)
        newton = share - slope / curvature if curvature > 0 else low
        before, share = share, newton if low < newton < high else (low + high) / 2
        if abs(share - before) < PRECISION:
            break
    return share


class CoarseTrees(TreeFields):
    """The model learns a few coarse buckets of each tree field like the features of any other field.

    >>> trees = CoarseTrees({"linear": FlatEmbedding([4], 1)}, {0: np.zeros(4)}, buckets=2)
    >>> trees.seen(EncodedRows(np.array([[1], [2], [3]], np.int32))).lists[0].take([1, 2, 3]).ids.tolist()
    [1, 1, 3]
    >>> trees.finish({"linear.weight": np.array([0, 5, 0, 7], np.float32)})["linear.weight"].tolist()
    [0.0, 5.0, 5.0, 7.0]
    """

    def __init__(
        self, tables: Mapping[str, FlatEmbedding], scores: Mapping[int, Floats], buckets: int = COARSE_BUCKETS
    ) -> None:
        self._tables = tables
        self._coarse = {index: _coarse_ids(len(own) - 1, buckets) for index, own in scores.items()}

    def seen(self, rows: EncodedRows) -> EncodedRows:
        lists = {index: Lists(np.arange(len(ids) + 1), ids) for index, ids in self._coarse.items()}
        return EncodedRows(rows.ids, {**rows.lists, **lists})

    def finish(self, weights: Saved) -> Saved:
        finished: dict[str, Any] = {}
        for name, values in weights.items():
            table = self._tables.get(name.removesuffix(".weight"))
            parts = {} if table is None else self._parts(table, values)
            finished[name] = with_parts(values, 1.0, parts)
        return finished

    def _parts(self, table: FlatEmbedding, values: Values) -> dict[int, NDArray[np.float32]]:
        """Return the weights of the tree fields in a table, by the position where they begin."""
        parts = {}
        for field, ids in self._coarse.items():
            begin, dim = table.offsets[field], table.dims[field]
            rows = read_part(values, begin, begin + len(ids) * dim).reshape(len(ids), dim)
            parts[begin] = rows[ids].reshape(-1)
        return parts


def _coarse_ids(buckets: int, count: int) -> NDArray[np.int32]:
    """Return for each id of a tree field that of the first bucket in its coarse bucket; 0 for the unknown feature."""
    coarse = np.arange(buckets) * count // max(buckets, count)
    return np.concatenate([[0], 1 + np.searchsorted(coarse, coarse)]).astype(np.int32)
