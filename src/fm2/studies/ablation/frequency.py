"""The difference of test and training loss by the frequency of features: the hypothesis of the paper's section 3.2.

FFM learns an embedding for each feature and each other field; those of rare features see few rows and overfit. FmFM
derives all of them from one embedding. If so, the loss of FFM on rows with rare features is lower in training and
higher in the test than that of FmFM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.rows import EncodedRows
from fm2.evaluation.metrics import Floats, row_losses
from fm2.evaluation.significance import CONFIDENCE, Difference
from fm2.training.inputs import feature_counts

EDGES = (1, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)  # counts in training
ROWS_PER_CHUNK = 1 << 16
FEWEST = 30  # occurrences in the test rows; bins with fewer are left out


@dataclass(frozen=True)
class Part:
    """Rows of a split: labels, weights, and how many of each row's features are in each bin [rows, bins]."""

    labels: NDArray[Any]
    weights: Floats
    shares: Floats

    @classmethod
    def of(
        cls, rows: EncodedRows, labels: NDArray[Any], weights: NDArray[Any] | None, bins: Sequence[NDArray[np.int64]]
    ) -> Part:
        """Count the features of rows in each bin; ``bins`` has the bin of each feature, by field."""
        w = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        shares = np.concatenate(
            [
                _count_bins(rows[begin : begin + ROWS_PER_CHUNK], bins)
                for begin in range(0, max(len(rows), 1), ROWS_PER_CHUNK)
            ]
        )
        return cls(labels, w, shares)

    def mean(self, values: Floats, number: int) -> Difference:
        """Return the mean of values over the features in a bin, with its standard error; rows are independent."""
        shares = self.shares[:, number] * self.weights
        total = shares.sum()
        mean = float(shares @ values / total)
        return Difference(mean, float(np.linalg.norm(shares * (values - mean)) / total))


def _count_bins(rows: EncodedRows, bins: Sequence[NDArray[np.int64]]) -> Floats:
    """Count the features of each row in each bin; the values of a list count one together."""
    width = 1 + len(EDGES)
    counts = np.zeros(len(rows) * width)
    for field, of_features in enumerate(bins):
        ids, row, weights = rows.ids[:, field], np.arange(len(rows)), None
        if field in rows.lists:
            lists = rows.lists[field].take(ids)
            ids, row = lists.ids, np.repeat(row, lists.sizes)
            weights = 1 / lists.sizes[row]
        counts += np.bincount(row * width + of_features[ids], weights, minlength=len(counts))
    return counts.reshape(len(rows), width)


def bins_of_features(dataset: Dataset) -> list[NDArray[np.int64]]:
    """Return the bin of each feature of each field: 0 for unknown ones, then by their count in training."""
    counts = np.split(feature_counts(dataset, dataset.vocabularies), np.cumsum(dataset.field_sizes)[:-1])
    bins = [np.searchsorted(EDGES, of_field, side="right") for of_field in counts]
    for of_field in bins:
        of_field[0] = 0
    return bins


def measure_gaps(
    train: Part, test: Part, predictions: Mapping[str, Sequence[tuple[NDArray[Any], NDArray[Any]]]]
) -> dict[str, Any]:
    """Return the gap between test and training loss of each model in each bin, and how it differs from the first model.

    ``predictions`` has the probabilities of the training and the test rows for each seed of a model.
    """
    losses = {
        name: [
            np.mean([row_losses(part.labels, run[number]) for run in runs], axis=0)
            for number, part in enumerate((train, test))
        ]
        for name, runs in predictions.items()
    }
    first = next(iter(losses.values()))
    numbers = [
        number
        for number in range(test.shares.shape[1])
        if test.shares[:, number].sum() >= FEWEST and train.shares[:, number].sum() >= FEWEST
    ]
    models = {
        name: [_gap(train, test, of_model, first if of_model is not first else None, number) for number in numbers]
        for name, of_model in losses.items()
    }
    shares = [float(test.shares[:, number].sum() / test.shares.sum()) for number in numbers]
    return {"bins": [bin_title(number) for number in numbers], "shares": shares, "models": models}


def _gap(
    train: Part, test: Part, losses: Sequence[Floats], first: Sequence[Floats] | None, number: int
) -> dict[str, Any]:
    """Return the losses of a bin and their difference, and the paired difference of the gap from the first model."""
    in_training, in_test = train.mean(losses[0], number), test.mean(losses[1], number)
    gap = {"train": in_training.value, "test": in_test.value, **_interval("gap", in_test, in_training)}
    if first is not None:
        paired = test.mean(losses[1] - first[1], number), train.mean(losses[0] - first[0], number)
        gap |= _interval("difference", *paired)
    return gap


def _interval(name: str, test: Difference, train: Difference) -> dict[str, float]:
    gap = Difference(test.value - train.value, sqrt(test.standard_error**2 + train.standard_error**2))
    low, high = gap.interval(CONFIDENCE)
    return {name: gap.value, f"{name}_low": low, f"{name}_high": high}


def bin_title(number: int) -> str:
    """Return the title of a bin.

    >>> [bin_title(number) for number in (0, 1, 2, len(EDGES))]
    ['unknown', '1 to 9', '10 to 29', '1,000,000 or more']
    """
    if number == 0:
        return "unknown"
    if number == len(EDGES):
        return f"{EDGES[-1]:,} or more"
    return f"{EDGES[number - 1]:,} to {EDGES[number] - 1:,}"
