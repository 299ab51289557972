"""Fit the trees of a tree field with LightGBM.

A model that saw the trees' predictions of rows that they were fitted to would trust them too much. So the training rows
get predictions of trees that were fitted to the rows of other folds; all other rows get those of trees that were fitted
to all training rows.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.tree_inputs import FOLDS, Table, TreeRows, numbers_of, pair_inputs, part_inputs
from fm2.data.tree_pairs import select_pairs
from fm2.data.trees import NODE, Pair, Trees
from fm2.errors import require

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

# Fewer trees that learn faster (at most 300 with a rate of 0.12) raise the test log loss of FmFM with trees by .0002 to
# .0005 on adult, avazu, criteo_inferred, movies, numbers and user_item of benchmarks/panel.py.
MOST_TREES, PATIENCE = 1000, 50
SETTINGS = {
    "objective": "cross_entropy",  # labels may be click rates
    "learning_rate": 0.05,
    "num_leaves": 16,
    "max_depth": 6,
    "min_data_in_leaf": 50,
    "lambda_l2": 1.0,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "use_missing": False,
    "deterministic": True,  # whatever the number of threads
    "force_row_wise": True,
    "verbose": -1,
}


@dataclass(frozen=True)
class FittedTrees:
    """Trees, the mean logit in each of their buckets, and the bucket of each training row.

    Scores and buckets are out-of-fold predictions.
    """

    trees: Trees
    scores: Floats
    buckets: Ints


def fit_trees(rows: TreeRows, validation: TreeRows, buckets: int, seed: int, threads: int) -> FittedTrees:
    """Fit trees to training rows; the validation rows select pairs of fields.

    The trees first read one field at a time. If pairs of fields explain their errors on the validation rows, the final
    ones read these, too.
    """
    boosting = _Boosting(rows, seed, threads)
    pairs: list[Pair] = []
    tables, columns = part_inputs(rows)
    numbers = np.stack(columns, axis=1)
    predictions, size = boosting.predict_held_out(numbers)
    final = boosting.fit_all(numbers, size)
    checked = boosting.predict(final, np.stack(numbers_of(validation, tables), axis=1))
    chosen = select_pairs(rows, predictions, validation, checked, seed, threads)
    if chosen:
        pairs, pair_tables, pair_columns = pair_inputs(rows, chosen)
        tables, numbers = tables + pair_tables, np.column_stack([numbers, *pair_columns])
        predictions, size = boosting.predict_held_out(numbers)
        final = boosting.fit_all(numbers, size)
    boundaries = _boundaries(predictions, rows.weights, buckets)
    roots = [tree["tree_structure"] for tree in final.dump_model()["tree_info"]]
    trees = _convert(roots, pairs, tables, len(rows.vocabularies), boundaries)
    of_rows = np.searchsorted(boundaries, predictions, "right").astype(np.int32)
    return FittedTrees(trees, _means(predictions, of_rows), of_rows)


def require_lightgbm() -> Any:
    """Import LightGBM, or raise an error that says how to install it.

    Its threads wait for each other thousands of times. By default, OpenMP lets them spin, which takes the processor
    from the thread that they wait for: on a busy machine with two cores, fitting then took ten times as long.
    """
    is_set = "OMP_WAIT_POLICY" in os.environ
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when OpenMP is first loaded
    try:
        return require("lightgbm", "trees", "fitting trees")
    finally:
        if not is_set:
            del os.environ["OMP_WAIT_POLICY"]


class _Boosting:
    """LightGBM on training rows."""

    def __init__(self, rows: TreeRows, seed: int, threads: int) -> None:
        self._lightgbm = require_lightgbm()
        self._rows = rows
        self._settings = {**SETTINGS, "seed": seed % 2**31, "num_threads": threads}

    def fit_all(self, numbers: Floats, trees: int) -> Any:
        """Fit ``trees`` trees to all rows."""
        data = self._data(numbers, np.ones(len(numbers), np.bool_))
        return self._lightgbm.train(self._settings, data, trees)

    def predict(self, fitted: Any, numbers: Floats) -> Floats:
        """Return the logits of rows; LightGBM raises an error for zero rows."""
        logits: Floats = np.empty(0, np.float32)
        return fitted.predict(numbers, raw_score=True).astype(np.float32) if len(numbers) else logits

    def predict_held_out(self, numbers: Floats) -> tuple[Floats, int]:
        """Return the logit of each row by trees that were not fitted to its fold, and the mean number of trees.

        The fold only decides when to stop adding trees.
        """
        predictions, sizes = np.zeros(len(numbers), np.float32), []
        for fold in range(FOLDS):
            held_out = self._rows.folds == fold
            stop = self._lightgbm.early_stopping(PATIENCE, verbose=False)
            data, valid = self._data(numbers, ~held_out), self._data(numbers, held_out)
            fitted = self._lightgbm.train(self._settings, data, MOST_TREES, valid_sets=[valid], callbacks=[stop])
            predictions[held_out] = self.predict(fitted, numbers[held_out])
            sizes.append(fitted.best_iteration)
        return predictions, max(round(float(np.mean(sizes))), 1)

    def _data(self, numbers: Floats, chosen: NDArray[np.bool_]) -> Any:
        weights = self._rows.weights[chosen]
        return self._lightgbm.Dataset(numbers[chosen], self._rows.labels[chosen], weight=weights)


def _boundaries(scores: Floats, weights: Floats, buckets: int) -> Floats:
    """Return the quantiles that divide scores into buckets of about the same weight."""
    order = np.argsort(scores, kind="stable")
    sums = np.cumsum(weights[order], dtype=np.float64)
    at = np.searchsorted(sums, sums[-1] * np.arange(1, buckets) / buckets)
    quantiles: Floats = np.unique(scores[order][at])
    above_lowest: Floats = quantiles[quantiles > scores[order[0]]]  # so that no bucket is empty
    return above_lowest


def _means(scores: Floats, buckets: Ints) -> Floats:
    """Return the mean score in each bucket, none of which is empty."""
    return np.asarray(np.bincount(buckets, scores) / np.bincount(buckets), np.float32)


def _convert(roots: list[Any], pairs: Sequence[Pair], tables: Sequence[Table], parts: int, boundaries: Floats) -> Trees:
    """Convert LightGBM's trees; inputs and pairs that they do not use are left out."""
    splits = list(_splits(roots))
    used = sorted({split["split_feature"] for split in splits})
    number = {id(split): at for at, split in enumerate(splits)}
    leaves: list[float] = []

    def next_of(child: dict[str, Any]) -> int:
        if id(child) in number:
            return number[id(child)]
        leaves.append(child["leaf_value"])
        return ~(len(leaves) - 1)

    nodes = np.zeros(len(splits), NODE)
    for at, split in enumerate(splits):
        children = next_of(split["left_child"]), next_of(split["right_child"])
        nodes[at] = (used.index(split["split_feature"]), _round_down(split["threshold"]), *children)
    first = np.array([next_of(root) for root in roots], np.int32)
    selected = _select(pairs, [tables[index] for index in used], parts)
    return Trees(*selected, first, nodes, np.array(leaves, np.float32), boundaries)


def _select(pairs: Sequence[Pair], inputs: Sequence[Table], parts: int) -> tuple[tuple[Pair, ...], tuple[Table, ...]]:
    """Return the pairs that inputs read, and the inputs with the new numbers of these pairs."""
    read = sorted({part - parts for part, _ in inputs if part >= parts})
    numbered = [(part if part < parts else parts + read.index(part - parts), table) for part, table in inputs]
    return tuple(pairs[pair] for pair in read), tuple(numbered)


def _splits(roots: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of trees that have children, each before its children."""
    for root in roots:
        level = [root]
        while level := [node for node in level if "split_feature" in node]:
            yield from level
            level = list(itertools.chain.from_iterable((node["left_child"], node["right_child"]) for node in level))


def _round_down(threshold: float) -> np.float32:
    """Return the largest float32 that is at most the threshold, so that float32 numbers compare as before."""
    rounded = np.float32(threshold)
    return np.nextafter(rounded, np.float32(-np.inf)) if rounded > threshold else rounded
