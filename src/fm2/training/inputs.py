"""What a training checks and derives from its dataset: splits, row weights, feature counts, the click rate."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.data.dataset import Dataset, Split, read_row_values
from fm2.data.manifest import counted_splits, impressions
from fm2.data.rows import EncodedRows
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error

COUNTED_ROWS = 1 << 20  # at a time


def check_splits(dataset: Dataset, operation: str = "train", measured: str = "validation") -> None:
    """Raise an error if a split that is needed for training, evaluation or the final measurement cannot be used."""
    purposes = {"train": "training", "validation": "validation", measured: measured}
    for split, purpose in ((dataset.split(name), purpose) for name, purpose in purposes.items()):
        if len(split) == 0:
            raise Fm2Error(f"{operation}: {dataset.path} has no rows for {purpose}; prepare it with other fractions=")
        labels = np.asarray(split.labels)
        if split.weights is not None:
            _check_weights(split, f"{operation}: {dataset.path}")
            labels = labels[split.weights > 0]
        lowest, highest = labels.min(), labels.max()
        if lowest == highest and lowest in (0, 1):
            raise Fm2Error(
                f"{operation}: all rows of {dataset.path} for {purpose} have the label {lowest:g}; "
                "prepare it with both labels, or with other fractions="
            )


def _check_weights(split: Split, where: str) -> None:
    """Raise an error if all rows of a split have the weight 0, or if the files were not written by ``prepare``."""
    weights = np.asarray(split.weights)
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise Fm2Error(f"{where} is damaged: the split '{split.name}' has invalid weights")
    if not ((split.labels >= 0) & (split.labels <= 1)).all():
        raise Fm2Error(f"{where} is damaged: the split '{split.name}' has invalid click rates")
    if not weights.any():
        raise Fm2Error(f"{where} has only rows with the weight 0 in the split '{split.name}'")


def read_row_weights(source: ArrayLike | str | Path, dataset: Dataset, operation: str = "train") -> NDArray[np.float32]:
    """Read the weight of every row of the log and check the values."""
    weights: NDArray[np.float32] = read_row_values(operation, "row weights", source, dataset, np.float32)
    invalid = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(invalid):
        row = invalid[0]
        raise Fm2Error(f"{operation}: row {row:,} has weight {weights[row]}; weights must be 0 or more")
    if not weights.any():
        raise Fm2Error(f"{operation}: all row weights are zero")
    return weights


def counted_rows(dataset: Dataset) -> int:
    """Return the number of rows, or of impressions, that the counts of features refer to; at least 1."""
    splits = dataset.manifest["splits"]
    return max(sum(impressions(splits[name]) for name in counted_splits(dataset.manifest)), 1)


def feature_counts(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> NDArray[np.int64]:
    """Count how often each feature occurs in training, field by field, the unknown feature of each field first."""
    return np.concatenate(list(counts_by_field(dataset, vocabularies)))


def counts_by_field(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> Iterator[NDArray[np.int64]]:
    """Count how often each feature of each field occurs in training, the unknown feature first."""
    unknown = [entry["unknown"]["train"] for entry in dataset.manifest["fields"]]
    return (np.r_[count, v.counts] for count, v in zip(unknown, vocabularies, strict=True))


def feature_weights(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> NDArray[np.float64]:
    """Return the mean square of each feature's weights in training, in the order of :func:`feature_counts`.

    It is 1 outside lists.
    """
    return np.concatenate(list(mean_squares_by_field(dataset, vocabularies)))


def mean_squares_by_field(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> Iterator[NDArray[np.float64]]:
    """Return the mean square of the weights of each field's features in training; it is 1 outside lists."""
    train = dataset.train.encoded
    return (
        mean_squares(train, field, len(vocabulary)) if field in train.lists else np.ones(len(vocabulary))
        for field, vocabulary in enumerate(vocabularies)
    )


def mean_squares(rows: EncodedRows, field: int, features: int) -> NDArray[np.float64]:
    """Return the mean square of the weights of each feature of a list field; 1 for features that do not occur.

    >>> from fm2.data.rows import Lists
    >>> lists = Lists.of([[3], [2, 2]], [[1.0], [0.5, 0.5]])
    >>> mean_squares(EncodedRows(np.array([[0], [1], [1]]), {0: lists}), 0, features=4).tolist()
    [1.0, 1.0, 0.25, 1.0]
    """
    counts, squares = np.zeros(features), np.zeros(features)
    for begin in range(0, len(rows), COUNTED_ROWS):
        lists = rows.lists[field].take(rows.ids[begin : begin + COUNTED_ROWS, field])
        counts += np.bincount(lists.ids, minlength=features)
        squares += np.bincount(lists.ids, np.square(lists.value_weights(), dtype=np.float64), minlength=features)
    return np.divide(squares, counts, out=np.ones(features), where=counts > 0)


def click_log_odds(dataset: Dataset, positive_weight: float, row_weights: NDArray[np.float32] | None) -> float:
    """Compute the logit of the training rows' weighted click rate: the initial bias."""
    train = dataset.train
    clicks = total = 0.0
    for begin in range(0, len(train), COUNTED_ROWS):
        rows = slice(begin, begin + COUNTED_ROWS)
        weights = np.ones(len(train.rows[rows]))
        if train.weights is not None:
            weights *= train.weights[rows]
        if row_weights is not None:
            weights *= row_weights[train.rows[rows]]
        clicks += float(weights @ train.labels[rows])
        total += float(weights.sum())
    positives, negatives = clicks * positive_weight, total - clicks
    return math.log(positives / negatives) if positives > 0 and negatives > 0 else 0.0


def number_fields(dataset: Dataset) -> list[int]:
    """Return the fields whose lists are the features of one number, or of the trees' score."""
    fields = enumerate(dataset.schema.fields)
    return [index for index, field in fields if (field.is_list and not field.multivalued) or field.trees]


def fingerprint(
    dataset: Dataset, row_weights: NDArray[np.float32] | None, start: str | None = None
) -> dict[str, str | None]:
    """Return what a resumed training must have in common; ``start`` is the checksum of the model to start from."""
    return {
        "another dataset": fingerprint_of(dataset),
        "other row weights": fingerprint_of_weights(row_weights),
        "another model to start from (start=)": start,
    }


def fingerprint_of(dataset: Dataset) -> str:
    """Return a hash of a dataset's content, which does not depend on its path."""
    content = json.dumps(dataset.manifest["files"], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def fingerprint_of_weights(weights: NDArray[np.float32] | None) -> str | None:
    """Return a hash of row weights; None without weights."""
    return None if weights is None else hashlib.sha256(np.ascontiguousarray(weights).data).hexdigest()
