"""The numbers that trees compare with thresholds: values, counts and click rates of features and combinations."""

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
Parts = tuple[int, ...]
Table = Input  # a part, or the number of parts + a pair; the number of each of its features, or what is read of a list

FOLDS = 4
LEAST_PRIOR_ROWS, MOST_PRIOR_ROWS = 1.0, 100.0
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
    own label. ``unit`` is the mean weight of an impression, or of a row without impressions. Trees see the features
    that are ``hidden`` (rows × parts) as unknown ones. ``pairs`` are numbered after the parts, and may be parts of
    later pairs; ``pair_ids`` has the feature of each of them in each row.
    """

    ids: Ints
    numbers: Mapping[int, Floats]
    vocabularies: Sequence[Vocabulary]
    labels: Floats
    weights: Floats
    folds: Ints
    lists: Mapping[int, Lists] = field(default_factory=dict)
    hidden: NDArray[np.bool_] | None = None
    pairs: tuple[Pair, ...] = ()
    pair_ids: tuple[Ints, ...] = ()
    unit: float = 1.0

    def with_pair(self, pair: Pair) -> TreeRows:
        """Return the rows with one more pair."""
        ids = _pair_ids(self, pair)
        return dataclasses.replace(self, pairs=(*self.pairs, pair), pair_ids=(*self.pair_ids, ids))

    def ids_of(self, part: int) -> Ints:
        """Return the feature of a part or pair in each row."""
        parts = len(self.vocabularies)
        return self.ids[:, part] if part < parts else self.pair_ids[part - parts]

    def size_of(self, part: int) -> int:
        """Return the number of features of a part or pair."""
        parts = len(self.vocabularies)
        return len(self.vocabularies[part]) if part < parts else len(self.pairs[part - parts].combinations) + 1

    def combined(self, part: int) -> Parts:
        """Return the parts that a pair combines, or the part itself.

        >>> pairs = (Pair((0, 2), None), Pair((3, 1), None))
        >>> rows = TreeRows(np.zeros((1, 3), np.int32), {}, [None] * 3, *[np.zeros(1)] * 3, pairs=pairs)
        >>> rows.combined(4), rows.combined(1)
        ((0, 2, 1), (1,))
        """
        parts = len(self.vocabularies)
        if part < parts:
            return (part,)
        a, b = self.pairs[part - parts].parts
        return self.combined(a) + self.combined(b)

    def number_of(self, parts: Parts) -> int | None:
        """Return the number of the pair that combines these parts, in this order; that of a single part is its own."""
        if len(parts) == 1:
            return parts[0]
        numbers = range(len(self.vocabularies), len(self.vocabularies) + len(self.pairs))
        return next((number for number in numbers if self.combined(number) == parts), None)

    def is_hidden(self, part: int) -> NDArray[np.bool_] | None:
        """Return in which rows the feature of a part, or one of those that a pair combines, is hidden."""
        return None if self.hidden is None else np.any(self.hidden[:, list(self.combined(part))], axis=1)

    def every(self, step: int) -> TreeRows:
        """Return every ``step``-th row."""
        return self if step == 1 else self._chosen(np.arange(0, len(self.ids), step))

    def none(self) -> TreeRows:
        """Return no rows."""
        return self._chosen(np.arange(0))

    def _chosen(self, chosen: NDArray[np.int64]) -> TreeRows:
        return TreeRows(
            self.ids[chosen],
            {part: column[chosen] for part, column in self.numbers.items()},
            self.vocabularies,
            self.labels[chosen],
            self.weights[chosen],
            self.folds[chosen],
            {part: lists.take(chosen) for part, lists in self.lists.items()},
            None if self.hidden is None else self.hidden[chosen],
            self.pairs,
            tuple(ids[chosen] for ids in self.pair_ids),
            self.unit,
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
        ids, hidden = rows.ids[:, part], rows.is_hidden(part)
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


def add_combinations(rows: TreeRows, combinations: Sequence[Parts]) -> tuple[TreeRows, list[Table], list[Floats]]:
    """Return training rows with these combinations of parts, the inputs that they have, and the number of each row.

    A combination of three parts is the pair of the first two, which is added if it is not there, and the third.
    """
    tables, columns = list[Table](), list[Floats]()
    for parts in combinations:
        rows, number = combine(rows, parts)
        hidden = rows.is_hidden(number)
        for table, column in _statistics(rows, rows.ids_of(number), rows.size_of(number)):
            tables.append((number, table))
            columns.append(_hide(table, column, hidden))
    return rows, tables, columns


def combine(rows: TreeRows, parts: Parts) -> tuple[TreeRows, int]:
    """Return the rows with a combination of parts, and its number."""
    known = rows.number_of(parts)
    if known is not None:
        return rows, known
    rows, first = combine(rows, parts[:-1])
    second, size = parts[-1], rows.size_of(parts[-1])
    keys = _keys(rows, first, second)
    distinct, counts = np.unique(keys[keys >= 0], return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_COMBINATIONS])
    ids = np.stack([distinct[kept] // size, distinct[kept] % size], axis=1).astype(np.int32)
    rows = rows.with_pair(Pair((first, second), ids))
    return rows, len(rows.vocabularies) + len(rows.pairs) - 1


def numbers_of(rows: TreeRows, tables: Sequence[Table], pairs: Sequence[Pair] = ()) -> list[Floats]:
    """Return the inputs of rows that are not training rows; ``pairs`` are those that they do not have yet."""
    for pair in pairs:
        rows = rows.with_pair(pair)
    return [
        value_column(rows.lists[part], table)
        if isinstance(table, ListValue)
        else table[rows.ids_of(part)]
        if len(table)
        else _number_column(rows, part)
        for part, table in tables
    ]


def _keys(rows: TreeRows, a: int, b: int) -> NDArray[np.int64]:
    """Return a number for each combination of two parts, in the order of their ids; -1 if one of them is unknown."""
    first, second = rows.ids_of(a), rows.ids_of(b)
    return np.where((first > 0) & (second > 0), first.astype(np.int64) * rows.size_of(b) + second, -1)


def _pair_ids(rows: TreeRows, pair: Pair) -> Ints:
    """Return the feature of a pair in each row."""
    if not len(pair.combinations):
        return np.zeros(len(rows.ids), np.int32)
    a, b = pair.parts
    known = pair.combinations.astype(np.int64) @ np.array([rows.size_of(b), 1])
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


def prior_rows(clicks: NDArray[np.float64], shown: NDArray[np.float64]) -> float:
    """Return the weight of the mean click rate in those of features, in rows or impressions.

    It is estimated by the method of moments: click rates that vary more than the clicks of so many rows would by
    chance have a beta distribution, whose parameters have this sum. The more features differ, the smaller it is.

    >>> shown = np.full(1000, 10.0)
    >>> round(prior_rows(np.tile([0.0, 10.0], 500), shown)), round(prior_rows(np.tile([4.0, 6.0], 500), shown))
    (1, 100)
    """
    clicks, shown = clicks[shown > 0], shown[shown > 0]
    total = shown.sum()
    mean = clicks.sum() / max(total, 1e-9)
    pairs = ((1 - shown / max(total, 1e-9)) * (shown - 1)).sum()
    if not 0 < mean < 1 or pairs <= 0:
        return MOST_PRIOR_ROWS
    excess = (shown * (clicks / shown - mean) ** 2).sum() / (mean * (1 - mean)) - (len(shown) - 1)
    correlation = float(np.clip(excess / pairs, 1e-9, 1))  # of two rows with the same feature
    return float(np.clip(1 / correlation - 1, LEAST_PRIOR_ROWS, MOST_PRIOR_ROWS))


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
    all_clicks, all_shown = clicks.sum(axis=0), shown.sum(axis=0)
    prior = rows.unit * prior_rows(all_clicks[1:] / rows.unit, all_shown[1:] / rows.unit)
    without_fold = logit(all_clicks - clicks, all_shown - shown)[rows.folds, ids]
    return [(np.log1p(counts).astype(np.float32), without_row), (logit(all_clicks, all_shown), without_fold)]
