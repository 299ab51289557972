"""Measure a trained or compiled model on a split of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.calibration import Calibration
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.calibration import CalibrationError, measure_calibration
from fm2.evaluation.id_mapping import make_id_map, map_ids
from fm2.evaluation.metrics import evaluate, sigmoid, weigh_clicks
from fm2.evaluation.prediction import Predictor, count_values, large_shares

ROWS_PER_CHUNK = 65_536
ROWS_SAMPLED = 100_000


@dataclass(frozen=True)
class Scores:
    """The labels, weights and logits of the rows of a split, and their features in one field, if there is one."""

    labels: NDArray[Any]
    weights: NDArray[Any] | None
    logits: NDArray[np.float32]
    features: NDArray[np.int32] | None

    def probabilities(self, calibration: Calibration | None = None) -> NDArray[np.float32]:
        """Return the probabilities; a ``calibration`` by a field needs the features of that field."""
        if calibration is None:
            return sigmoid(self.logits).astype(np.float32)
        features = None if calibration.field is None else self.features
        return sigmoid(calibration.apply_by(self.logits, features)).astype(np.float32)

    def metrics(self, calibration: Calibration | None = None) -> dict[str, Any]:
        """Compute the metrics of the probabilities."""
        return evaluate(self.labels, self.probabilities(calibration), self.weights)

    def calibration_errors(self, calibration: Calibration | None) -> dict[str, CalibrationError]:
        """Measure the calibration error before and, with a calibration, after calibrating."""
        stages = {"uncalibrated": None} | ({"calibrated": calibration} if calibration else {})
        return {
            stage: measure_calibration(self.labels, self.probabilities(applied), self.weights)
            for stage, applied in stages.items()
        }


def score_split(
    model: Predictor, dataset: Dataset, split: str, field: int | None = None, operation: str = "evaluate"
) -> Scores:
    """Compute the logits of a split of a dataset; keep the features of its rows in a ``field``."""
    rows = dataset.split(split)
    if len(rows) == 0:
        raise Fm2Error(f"{operation}: {dataset.path} has no rows in the split '{split}'")
    id_map = make_id_map(model.encoder, dataset, model.path, operation)
    logits = np.empty(len(rows), np.float32)
    features = None if field is None else np.empty(len(rows), np.int32)
    for begin in range(0, len(rows), ROWS_PER_CHUNK):
        chunk = slice(begin, begin + ROWS_PER_CHUNK)
        try:
            encoded = map_ids(rows.encoded[chunk], id_map)
            logits[chunk] = model.logits(encoded)
        except IndexError as error:
            message = f"{operation}: {dataset.path} is damaged in the split '{split}', from row {begin:,}: {error}"
            raise Fm2Error(message) from error
        if features is not None:
            features[chunk] = encoded.ids[:, field]
    return Scores(*targets(dataset, split), logits, features)


def targets(dataset: Dataset, split: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the labels and weights of a split for metrics.

    If the training rows without a click were sampled, clicks get a lower weight, so that the metrics estimate those of
    the complete log.
    """
    rows = dataset.split(split)
    return weigh_clicks(rows.labels, rows.weights, dataset.negative_rate if split == "train" else 1.0)


def effective_rows(dataset: Dataset, split: str) -> float:
    """Return the number of impressions of a split, or of equally weighted rows with the same standard error.

    >>> import fm2, polars, tempfile
    >>> log = polars.DataFrame({"click": [0, 1] * 50, "site": ["a", "b"] * 50, "w": [1.0, 3.0] * 50})
    >>> schema = fm2.Schema([fm2.Field("site")], label="click", weight="w")
    >>> data = fm2.prepare(log, schema, tempfile.mkdtemp() + "/data", fractions=(1, 0, 0))
    >>> effective_rows(data, "train")
    80.0
    """
    impressions = dataset.manifest["splits"][split].get("impressions")
    if impressions is not None:
        return float(impressions)
    _, weights = targets(dataset, split)
    if weights is None:
        return float(len(dataset.split(split)))
    weights = weights.astype(np.float64)
    return float(weights.sum() ** 2 / (weights @ weights)) if weights.any() else 0.0


def evaluate_split(model: Predictor, dataset: Dataset | str | Path, split: str = "test") -> dict[str, Any]:
    """Compute the metrics of a model on a split of a dataset, which may be another one than it was trained on."""
    return score_calibrated(model, Dataset.of(dataset), split).metrics(model.calibration)


def score_calibrated(model: Predictor, dataset: Dataset, split: str) -> Scores:
    """Compute what the model's calibration needs to know about a split."""
    return score_split(model, dataset, split, model.calibration.field if model.calibration else None)


def mostly_unknown(model: Predictor, dataset: Dataset, split: str = "test") -> dict[str, float]:
    """Return the share of values unknown to the model, for the fields of a split where it is large."""
    rows = dataset.split(split).encoded[:ROWS_SAMPLED]
    mapped = map_ids(rows, make_id_map(model.encoder, dataset, model.path))
    unknown, values = (dict(zip(dataset.schema.names, counts, strict=True)) for counts in count_values(mapped))
    return large_shares(unknown, values)
