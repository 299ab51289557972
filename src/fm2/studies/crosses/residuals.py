"""What a base model does not explain: its errors on rows that it was not trained on."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.dataset import Dataset, Split
from fm2.errors import Fm2Error, printable
from fm2.evaluation.metrics import sigmoid
from fm2.studies.crosses.coverage import Coverage, measure_coverage
from fm2.training.run import Run
from fm2.training.train import train

Floats = NDArray[np.float32]
Watch = Callable[[str], None]


@dataclass(frozen=True)
class CrossGain:
    """What a cross of these fields adds to the base model.

    ``gain`` is the mean decrease of the log loss of the validation rows, and ``error`` its standard error.
    ``combinations`` is the number of combinations that are frequent enough, and ``covered`` the share of the validation
    rows that have one of them.
    """

    fields: tuple[str, ...]
    gain: float
    error: float
    combinations: int
    covered: float

    @property
    def z(self) -> float:
        """The gain in standard errors."""
        return self.gain / self.error if self.error else 0.0

    def __str__(self) -> str:
        return printable(" × ".join(self.fields))


class Residuals:
    """Rows of a dataset with the logits of base models that were not trained on them.

    Two models are trained, each on one half of the training rows. A training row has the logit of the model of the
    other half, and a validation row the mean of both logits. Otherwise a cross would have to explain what is left of
    the labels that a model has already fitted.
    """

    def __init__(
        self,
        dataset: Dataset,
        model: str,
        *,
        rows: int,
        seed: int,
        threads: int,
        watch: Watch,
        settings: dict[str, Any],
    ) -> None:
        if not len(dataset.validation):
            raise Fm2Error("crosses: the dataset has no validation rows; prepare it with some to verify the gains")
        self.names = dataset.schema.names
        self.fields = [
            index
            for index, field in enumerate(dataset.schema.fields)
            if not (field.is_list or field.is_derived) and dataset.field_sizes[index] > 2
        ]
        self.known = {frozenset(field.cross) for field in dataset.schema.fields if field.cross}
        self._threads = threads
        halves = np.random.default_rng(seed).integers(0, 2, len(dataset.train)).astype(np.uint8)
        settings = {**settings, "seed": seed, "progress": False}
        if threads:
            settings["threads"] = threads
        logits = np.empty(len(halves), np.float32)
        validation = np.zeros(len(dataset.validation), np.float32)
        with tempfile.TemporaryDirectory(prefix="fm2-crosses-") as folder:
            for half in (0, 1):
                watch(f"training {model} on half {half + 1} of 2")
                weights = _weights_of(dataset, halves == half)
                run = train(model, dataset, Path(folder) / str(half), row_weights=weights, **settings)
                others = np.flatnonzero(halves != half)
                logits[others] = _logits(run, dataset.train, others)
                validation += _logits(run, dataset.validation, np.arange(len(validation))) / 2
        logits -= math.log(dataset.negative_rate)  # models predict the complete log, but these rows are a sample
        self._training, self._validation = (
            _Rows.of(split, part, rows) for split, part in ((dataset.train, logits), (dataset.validation, validation))
        )
        self._halves = np.ascontiguousarray(halves[self._training.chosen])
        self._share = len(self._halves) / len(halves)
        # A row counts as often as in the vocabulary: as often as it has impressions.
        counted = self._training.weights if dataset.schema.impressions else np.ones(len(self._halves), np.float32)
        self._counts = np.ascontiguousarray(counted)
        self._later = {
            name: np.ascontiguousarray(split.ids[_spaced(len(split), rows)].T)
            for name, split in (("validation", dataset.validation), ("test", dataset.test))
            if len(split)
        }
        self._update()

    def _update(self) -> None:
        training, validation = self._training, self._validation
        probabilities = sigmoid(training.logits.astype(np.float64))
        residuals = training.weights * (training.labels - probabilities)
        curvatures = training.weights * probabilities * (1 - probabilities)
        self._native = _native.CrossRanking(
            training.ids,
            residuals.astype(np.float32),
            curvatures.astype(np.float32),
            self._halves,
            self._counts,
            validation.ids,
            validation.logits,
            validation.labels,
            validation.weights,
        )

    @property
    def log_loss(self) -> float:
        """The log loss of the validation rows."""
        rows = self._validation
        logits = rows.logits.astype(np.float64)
        losses = np.logaddexp(0, logits) - rows.labels * logits
        return float(np.average(losses, weights=rows.weights))

    def measure(self, crosses: Sequence[Sequence[int]], min_count: int) -> list[CrossGain]:
        """Measure the gains of crosses of these fields."""
        gains = self._native.measure([list(parts) for parts in crosses], self._least(min_count), self._threads)
        return [
            CrossGain(tuple(self.names[part] for part in parts), gain, error, combinations, covered)
            for parts, (gain, error, combinations, covered, _) in zip(crosses, gains, strict=True)
        ]

    def coverage(self, parts: Sequence[int], min_count: int) -> Coverage:
        """Return how many rows of each split have a combination that is frequent enough."""
        return measure_coverage(
            self._training.ids[list(parts)],
            self._counts,
            {name: ids[list(parts)] for name, ids in self._later.items()},
            self._least(min_count),
        )

    def _least(self, min_count: int) -> int:
        """Return ``min_count`` for the sample of the training rows."""
        return max(1, round(min_count * self._share))

    def add(self, parts: Sequence[int], min_count: int) -> None:
        """Add a cross to the base model, so that the gains of others are those beyond it."""
        training, validation = self._native.shifts(list(parts), self._least(min_count))
        self._training.logits[:] += training
        self._validation.logits[:] += validation
        self._update()


@dataclass(frozen=True)
class _Rows:
    """Spaced rows of a split: ids (fields × rows), logits, labels and weights."""

    chosen: NDArray[np.int64]
    ids: NDArray[np.int32]
    logits: Floats
    labels: Floats
    weights: Floats

    @classmethod
    def of(cls, split: Split, logits: Floats, most: int) -> _Rows:
        chosen = _spaced(len(split), most)
        weights = np.ones(len(chosen), np.float32) if split.weights is None else split.weights[chosen]
        return cls(
            chosen,
            np.ascontiguousarray(split.ids[chosen].T),
            np.ascontiguousarray(logits[chosen]),
            np.asarray(split.labels[chosen], np.float32),
            np.asarray(weights, np.float32),
        )


def _spaced(rows: int, most: int) -> NDArray[np.int64]:
    """Return the numbers of at most so many rows, equally spaced."""
    return np.linspace(0, rows - 1, min(most, rows)).round().astype(np.int64)


def _weights_of(dataset: Dataset, trained: NDArray[np.bool_]) -> Floats:
    """Return weights of 1 for some of the training rows, by row of the log."""
    splits = (dataset.train, dataset.validation, dataset.test)
    weights = np.zeros(max(int(split.rows.max()) + 1 for split in splits if len(split)), np.float32)
    weights[dataset.train.rows[trained]] = 1
    return weights


def _logits(run: Run, split: Split, rows: NDArray[np.int64]) -> Floats:
    return run.logits(split.encoded[rows])
