"""Measure a trained or compiled model on a split of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.id_mapping import make_id_map, map_ids
from fm2.evaluation.metrics import evaluate
from fm2.evaluation.prediction import Predictor, large_shares

ROWS_PER_CHUNK = 65_536
ROWS_SAMPLED = 100_000


def evaluate_split(model: Predictor, dataset: Dataset | str | Path, split: str = "test") -> dict[str, Any]:
    """Compute the metrics of a model on a split of a dataset, which may be another one than it was trained on."""
    dataset = Dataset.of(dataset)
    rows = dataset.split(split)
    if len(rows) == 0:
        raise Fm2Error(f"evaluate: {dataset.path} has no rows in the split '{split}'")
    id_map = make_id_map(model.encoder, dataset, model.path)
    probabilities = np.empty(len(rows), np.float32)
    for begin in range(0, len(rows), ROWS_PER_CHUNK):
        chunk = slice(begin, begin + ROWS_PER_CHUNK)
        try:
            probabilities[chunk] = model.probabilities(map_ids(np.asarray(rows.ids[chunk]), id_map))
        except IndexError as error:
            message = f"evaluate: {dataset.path} is damaged in the split '{split}', from row {begin:,}: {error}"
            raise Fm2Error(message) from error
    return evaluate(rows.labels, probabilities)


def mostly_unknown(model: Predictor, dataset: Dataset, split: str = "test") -> dict[str, float]:
    """Return the share of values unknown to the model, for the fields of a split where it is large."""
    ids = np.asarray(dataset.split(split).ids[:ROWS_SAMPLED])
    ids = map_ids(ids, make_id_map(model.encoder, dataset, model.path))
    counts = dict(zip(model.encoder.schema.names, np.count_nonzero(ids == 0, axis=0).tolist(), strict=True))
    return large_shares(counts, len(ids))
