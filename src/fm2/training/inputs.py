"""What a training derives from its dataset: row weights, feature counts, the click rate, fingerprints."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.data.dataset import Dataset, read_row_values
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error

COUNTED_ROWS = 1 << 20  # at a time


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


def feature_counts(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> NDArray[np.int64]:
    """Count how often each feature occurs in training, field by field, the unknown feature of each field first."""
    unknown = [entry["unknown"]["train"] for entry in dataset.manifest["fields"]]
    return np.concatenate([np.r_[count, v.counts] for count, v in zip(unknown, vocabularies, strict=True)])


def click_log_odds(dataset: Dataset, positive_weight: float, row_weights: NDArray[np.float32] | None) -> float:
    """Compute the logit of the training rows' weighted click rate: the initial bias."""
    totals = np.zeros(2)
    for begin in range(0, len(dataset.train), COUNTED_ROWS):
        rows = slice(begin, begin + COUNTED_ROWS)
        weights = None if row_weights is None else row_weights[dataset.train.rows[rows]]
        totals += np.bincount(dataset.train.labels[rows], weights, minlength=2)
    negatives, positives = totals[0], totals[1] * positive_weight
    return math.log(positives / negatives) if positives and negatives else 0.0


def fingerprint_of(dataset: Dataset) -> str:
    """Return a hash of a dataset's content, which does not depend on its path."""
    content = json.dumps(dataset.manifest["files"], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def fingerprint_of_weights(weights: NDArray[np.float32] | None) -> str | None:
    """Return a hash of row weights; None without weights."""
    return None if weights is None else hashlib.sha256(np.ascontiguousarray(weights).data).hexdigest()
