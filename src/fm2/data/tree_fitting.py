"""Fit the trees of a tree field with LightGBM.

A model that saw the trees' predictions of rows that they were fitted to would trust them too much. So the training rows
get predictions of trees that were fitted to the rows of other folds; all other rows get those of trees that were fitted
to all training rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.tree_boosting import Boosting, TreeProgress
from fm2.data.tree_combinations import SELECTION_PERCENT, select_combinations
from fm2.data.tree_inputs import FOLDS, Table, TreeRows, add_combinations, hide_features, numbers_of, part_inputs
from fm2.data.trees import NODE, Pair, Trees

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class FittedTrees:
    """Trees, the mean logit in each of their buckets, and the bucket of each training row.

    Scores and buckets are out-of-fold predictions.
    """

    trees: Trees
    scores: Floats
    buckets: Ints


def fit_trees(
    rows: TreeRows, validation: TreeRows, buckets: int, seed: int, threads: int, progress: TreeProgress | None = None
) -> FittedTrees:
    """Fit trees to training rows; validation rows select combinations of fields, and how many features are hidden."""
    if not validation.weights.any():
        validation = validation.none()
    rows = hide_features(rows, validation, seed)
    progress = progress or TreeProgress()
    boosting = Boosting(rows, seed, threads, progress)
    tables, columns = part_inputs(rows)
    chosen = select_combinations(rows, validation, seed, threads, progress)
    rows, pair_tables, pair_columns = add_combinations(rows, chosen)
    tables += pair_tables
    numbers = np.stack([*columns, *pair_columns], axis=1)
    progress.begin(SELECTION_PERCENT, 100, FOLDS + 3)
    boosting.choose_size(numbers, validation, np.stack(numbers_of(validation, tables, rows.pairs), axis=1))
    predictions, size = boosting.predict_held_out(numbers)
    final = boosting.fit_all(numbers, size)
    boundaries = _boundaries(predictions, rows.weights, buckets)
    roots = [tree["tree_structure"] for tree in final.dump_model()["tree_info"]]
    trees = _convert(roots, rows.pairs, tables, len(rows.vocabularies), boundaries)
    of_rows = np.searchsorted(boundaries, predictions, "right").astype(np.int32)
    return FittedTrees(trees, _means(predictions, of_rows), of_rows)


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
    """Return the pairs that inputs read or that these combine, and the inputs with the new numbers of these pairs."""
    needed = {part for part, _ in inputs if part >= parts}
    for part in range(parts + len(pairs) - 1, parts - 1, -1):  # a pair combines earlier ones
        if part in needed:
            needed |= {each for each in pairs[part - parts].parts if each >= parts}
    numbers = {part: part for part in range(parts)} | {part: parts + at for at, part in enumerate(sorted(needed))}
    kept = [pairs[part - parts] for part in sorted(needed)]
    renumbered = [Pair((numbers[pair.parts[0]], numbers[pair.parts[1]]), pair.combinations) for pair in kept]
    return tuple(renumbered), tuple((numbers[part], table) for part, table in inputs)


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
