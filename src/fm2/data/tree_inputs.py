"""The numbers that trees compare with thresholds: values, counts and click rates of features and of pairs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.trees import Pair
from fm2.data.vocabulary import Vocabulary

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Table = tuple[int, Floats]  # a part, or the number of parts + a pair, and the number of each of its features

FOLDS = 4
PRIOR_ROWS = 10.0  # the weight of the mean click rate in that of a feature
MISSING = _native.MISSING_NUMBER  # below all thresholds between numbers
FEW_VALUES = 256  # numbers that trees can single out, as LightGBM has as many bins
MOST_COMBINATIONS = 1 << 18  # of a pair, the most frequent ones


@dataclass(frozen=True)
class TreeRows:
    """Rows: the ids of the parts (rows × parts), the numbers of some parts, labels, weights and folds.

    The click rates of a training row's features are those of the rows of other folds, so that they do not contain its
    own label.
    """

    ids: Ints
    numbers: Mapping[int, Floats]
    vocabularies: Sequence[Vocabulary]
    labels: Floats
    weights: Floats
    folds: Ints


def part_inputs(rows: TreeRows) -> tuple[list[Table], list[Floats]]:
    """Return the inputs that parts have, and the number of each row."""
    tables, columns = list[Table](), list[Floats]()
    for part, vocabulary in enumerate(rows.vocabularies):
        ids = rows.ids[:, part]
        if part in rows.numbers:
            tables.append((part, np.empty(0, np.float32)))
            columns.append(_number_column(rows, part))
            continue
        values = _values(vocabulary)
        if values is not None:
            tables.append((part, values))
            columns.append(values[ids])
        if values is None or len(vocabulary) > FEW_VALUES:
            for table, column in _statistics(rows, ids, len(vocabulary)):
                tables.append((part, table))
                columns.append(column)
    return tables, columns


def numbers_of(rows: TreeRows, tables: Sequence[Table]) -> list[Floats]:
    """Return the inputs of rows that are not training rows; ``tables`` are those of parts."""
    return [table[rows.ids[:, part]] if len(table) else _number_column(rows, part) for part, table in tables]


def _number_column(rows: TreeRows, part: int) -> Floats:
    return np.nan_to_num(rows.numbers[part], nan=MISSING, posinf=-MISSING, neginf=MISSING)


def pair_inputs(rows: TreeRows, parts: Sequence[tuple[int, int]]) -> tuple[list[Pair], list[Table], list[Floats]]:
    """Return pairs of parts, the inputs that they have, and the number of each row."""
    pairs, tables, columns = list[Pair](), list[Table](), list[Floats]()
    for a, b in parts:
        size = len(rows.vocabularies[b])
        keys = rows.ids[:, a].astype(np.int64) * size + rows.ids[:, b]
        known = (rows.ids[:, a] > 0) & (rows.ids[:, b] > 0)
        distinct, counts = np.unique(keys[known], return_counts=True)
        kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_COMBINATIONS])
        distinct = distinct[kept]
        at = np.minimum(np.searchsorted(distinct, keys), max(len(distinct) - 1, 0))
        ids = (
            np.where(known & (distinct[at] == keys), at + 1, 0).astype(np.int32)
            if len(distinct)
            else np.zeros_like(keys, np.int32)
        )
        for table, column in _statistics(rows, ids, len(distinct) + 1):
            tables.append((len(rows.vocabularies) + len(pairs), table))
            columns.append(column)
        pairs.append(Pair((a, b), np.stack([distinct // size, distinct % size], axis=1).astype(np.int32)))
    return pairs, tables, columns


def _values(vocabulary: Vocabulary) -> Floats | None:
    """Return the value of each id as a number, or None if there are values that are not numbers."""
    if vocabulary.hashed or len(vocabulary) < 3:
        return None
    values = np.full(len(vocabulary), MISSING, np.float64)
    for id, text in enumerate(vocabulary.values(), start=1):
        try:
            value = float(text) if text else MISSING
        except ValueError:
            return None
        values[id] = value if abs(value) < -MISSING else MISSING  # not a number, or infinite
    return values.astype(np.float32)


def _statistics(rows: TreeRows, ids: Ints, size: int) -> list[tuple[Floats, Floats]]:
    """Return the count and the click rate of each feature; for each row, those without the row itself or its fold.

    Counts are on a log scale, and rates are logits.
    """

    def sums(values: NDArray[Any]) -> NDArray[Any]:  # by fold and feature
        return np.bincount(rows.folds * np.int64(size) + ids, values, minlength=FOLDS * size).reshape(FOLDS, size)

    def logit(clicks: NDArray[Any], shown: NDArray[Any]) -> Floats:
        rate = (clicks + prior * mean) / (shown + prior)
        logits: Floats = np.log(rate / (1 - rate)).astype(np.float32)
        return logits

    counts = np.bincount(ids, minlength=size)
    counts[0] = 0  # unknown features have nothing in common
    without_row = np.log1p(np.maximum(counts[ids] - 1, 0)).astype(np.float32)
    clicks, shown = sums(rows.weights * rows.labels.astype(np.float64)), sums(rows.weights.astype(np.float64))
    mean = np.clip(clicks.sum() / shown.sum(), 1e-6, 1 - 1e-6)
    prior = PRIOR_ROWS * float(rows.weights.mean())
    all_clicks, all_shown = clicks.sum(axis=0), shown.sum(axis=0)
    without_fold = logit(all_clicks - clicks, all_shown - shown)[rows.folds, ids]
    return [(np.log1p(counts).astype(np.float32), without_row), (logit(all_clicks, all_shown), without_fold)]
