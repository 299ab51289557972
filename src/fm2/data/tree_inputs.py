"""The numbers that trees compare with thresholds: values, counts and click rates of features and of pairs of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.rows import Lists
from fm2.data.tree_lists import length_column, list_inputs, value_column
from fm2.data.trees import Input, ListValue, Pair
from fm2.data.vocabulary import Vocabulary

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Table = Input  # a part, or the number of parts + a pair; the number of each of its features, or what is read of a list

FOLDS = 4
PRIOR_ROWS = 10.0  # the weight of the mean click rate in that of a feature
MISSING = _native.MISSING_NUMBER  # below all thresholds between numbers
FEW_VALUES = 256  # numbers that trees can single out, as LightGBM has as many bins
MOST_COMBINATIONS = 1 << 18  # of a pair, the most frequent ones
# The largest share of hidden features. On the log of movies, where 96% of the validation rows have new users, shares of
# 0, 5%, 15% and 30% give the trees a test log loss of .5627, .5514, .5518 and .5531; on drift, 0, 10% and 30% give
# .4023, .3996 and .3991.
MOST_HIDDEN = 0.1


@dataclass(frozen=True)
class TreeRows:
    """Rows: the ids of the parts (rows × parts), the numbers of some parts, labels, weights and folds.

    Multi-valued parts have one of the ``lists`` per row, and no ids.

    The click rates of a training row's features are those of the rows of other folds, so that they do not contain its
    own label. Trees see the features that are ``hidden`` (rows × parts) as unknown ones.
    """

    ids: Ints
    numbers: Mapping[int, Floats]
    vocabularies: Sequence[Vocabulary]
    labels: Floats
    weights: Floats
    folds: Ints
    lists: Mapping[int, Lists] = field(default_factory=dict)
    hidden: NDArray[np.bool_] | None = None

    def every(self, step: int) -> TreeRows:
        """Return every ``step``-th row."""
        if step == 1:
            return self
        chosen = np.arange(0, len(self.ids), step)
        return TreeRows(
            self.ids[chosen],
            {part: column[chosen] for part, column in self.numbers.items()},
            self.vocabularies,
            self.labels[chosen],
            self.weights[chosen],
            self.folds[chosen],
            {part: lists.take(chosen) for part, lists in self.lists.items()},
            None if self.hidden is None else self.hidden[chosen],
        )


def hide_features(rows: TreeRows, validation: TreeRows, seed: int) -> TreeRows:
    """Return the training rows with hidden features, in parts that are unknown in more of the validation rows.

    In training rows, most features are known. Without hidden ones, trees would not learn what to predict for new users
    or items.
    """
    unknown = (validation.ids == 0).mean(axis=0) if len(validation.ids) else np.zeros(rows.ids.shape[1])
    shares = np.clip(unknown - (rows.ids == 0).mean(axis=0), 0, MOST_HIDDEN).astype(np.float32)
    if not shares.any():
        return rows
    hidden = np.random.default_rng(seed).random(rows.ids.shape, np.float32) < shares
    return dataclasses.replace(rows, hidden=hidden)


def part_inputs(rows: TreeRows) -> tuple[list[Table], list[Floats]]:
    """Return the inputs that parts have, and the number of each training row."""
    tables, columns = list[Table](), list[Floats]()
    for part, vocabulary in enumerate(rows.vocabularies):
        if part in rows.lists:
            continue
        ids = rows.ids[:, part]
        hidden = None if rows.hidden is None else rows.hidden[:, part]
        if part in rows.numbers:
            tables.append((part, np.empty(0, np.float32)))
            columns.append(_number_column(rows, part))
            continue
        values = _values(vocabulary)
        if values is not None:
            tables.append((part, values))
            columns.append(_hide(values, values[ids], hidden))
        if values is None or len(vocabulary) > FEW_VALUES:
            for table, column in _statistics(rows, ids, len(vocabulary)):
                tables.append((part, table))
                columns.append(_hide(table, column, hidden))
    for part, read, column in list_inputs(rows.lists, rows.vocabularies, len(tables)):
        tables.append((part, read))
        columns.append(column)
    return tables, columns


def pair_inputs(rows: TreeRows, parts: Sequence[tuple[int, int]]) -> tuple[list[Pair], list[Table], list[Floats]]:
    """Return pairs of parts, the inputs that they have, and the number of each training row."""
    pairs, tables, columns = list[Pair](), list[Table](), list[Floats]()
    for a, b in parts:
        size = len(rows.vocabularies[b])
        keys = _keys(rows, a, b)
        distinct, counts = np.unique(keys[keys >= 0], return_counts=True)
        kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_COMBINATIONS])
        pair = Pair((a, b), np.stack([distinct[kept] // size, distinct[kept] % size], axis=1).astype(np.int32))
        hidden = None if rows.hidden is None else rows.hidden[:, a] | rows.hidden[:, b]
        for table, column in _statistics(rows, _pair_ids(rows, pair), len(pair.combinations) + 1):
            tables.append((len(rows.vocabularies) + len(pairs), table))
            columns.append(_hide(table, column, hidden))
        pairs.append(pair)
    return pairs, tables, columns


def numbers_of(rows: TreeRows, tables: Sequence[Table], pairs: Sequence[Pair] = ()) -> list[Floats]:
    """Return the inputs of rows that are not training rows."""
    ids = [*rows.ids.T, *(_pair_ids(rows, pair) for pair in pairs)]
    return [
        value_column(rows.lists[part], table)
        if isinstance(table, ListValue)
        else table[ids[part]]
        if len(table)
        else _number_column(rows, part)
        for part, table in tables
    ]


def _keys(rows: TreeRows, a: int, b: int) -> NDArray[np.int64]:
    """Return a number for each combination of two parts, in the order of their ids; -1 if one of them is unknown."""
    keys = rows.ids[:, a].astype(np.int64) * len(rows.vocabularies[b]) + rows.ids[:, b]
    return np.where((rows.ids[:, a] > 0) & (rows.ids[:, b] > 0), keys, -1)


def _pair_ids(rows: TreeRows, pair: Pair) -> Ints:
    """Return the feature of a pair in each row."""
    if not len(pair.combinations):
        return np.zeros(len(rows.ids), np.int32)
    a, b = pair.parts
    known = pair.combinations.astype(np.int64) @ np.array([len(rows.vocabularies[b]), 1])
    keys = _keys(rows, a, b)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, at + 1, 0).astype(np.int32)


def _hide(table: Floats, column: Floats, hidden: NDArray[np.bool_] | None) -> Floats:
    return column if hidden is None else np.where(hidden, table[0], column)


def _number_column(rows: TreeRows, part: int) -> Floats:
    if part in rows.lists:
        return length_column(rows.lists[part])
    return np.nan_to_num(rows.numbers[part], nan=MISSING, posinf=-MISSING, neginf=MISSING)


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
