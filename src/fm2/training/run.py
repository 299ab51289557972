"""The directory of a training: its settings, its history, the best model, the last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.vocabulary import ARRAYS, Vocabulary
from fm2.errors import Fm2Error
from fm2.models import Model, build
from fm2.schema import Schema
from fm2.training.checkpoints import Arrays, Saved, load_arrays, save_arrays

MODEL, CHECKPOINT, HISTORY, SETTINGS = "model.safetensors", "checkpoint.safetensors", "history.jsonl", "settings.toml"
FORMAT, VERSION = "fm2 model", 1
PREDICT_ROWS = 8192


class Run:
    """A trained model with what it needs to read raw rows: from a directory that :func:`fm2.train` made.

    The model file holds everything: weights, vocabularies, schema; the rest of the directory tells how it came about.
    """

    def __init__(self, path: Path, model: Model, encoder: Encoder, metrics: dict[str, Any]) -> None:
        self.path, self.model, self.encoder, self.metrics = path, model, encoder, metrics

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open the best model of a run."""
        path = Path(path)
        if not (path / MODEL).is_file():
            raise Fm2Error(f"{path} has no trained model ({MODEL}); fm2 train makes one")
        arrays, values = load_arrays(path / MODEL)
        try:
            if (values["format"], values["version"]) != (FORMAT, VERSION):
                raise Fm2Error(f"{path}: {MODEL} has the format {values['format']} {values['version']}")
            schema = Schema.from_dict(values["schema"])
            vocabularies = [_vocabulary(arrays, index) for index in range(len(schema.fields))]
            model = build(values["model"], seed=None)
            _load_weights(model, {name: arrays[f"model.{name}"] for name, _ in model.named_parameters()})
        except (KeyError, TypeError, ValueError, RuntimeError) as wrong:
            raise Fm2Error(f"{path}: {MODEL} does not fit together: {wrong}") from wrong
        return cls(path, model, Encoder(schema, vocabularies), values["metrics"])

    def check(self, dataset: Dataset) -> None:
        """Make sure that the data set was encoded as this model's was."""
        if dataset.schema.names != self.encoder.schema.names:
            raise Fm2Error(f"{dataset.path} has other fields than the model of {self.path}")
        for name, ours, theirs in zip(
            dataset.schema.names, self.encoder.vocabularies, dataset.vocabularies, strict=True
        ):
            if not (np.array_equal(ours.data, theirs.data) and np.array_equal(ours.ends, theirs.ends)):
                raise Fm2Error(
                    f"the field '{name}' of {dataset.path} has another vocabulary than the model of {self.path}; "
                    f"encode its rows with fm2 predict, or train with this data set"
                )

    def probabilities(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Give the click probability of encoded rows."""
        import torch

        with torch.no_grad():
            parts = [
                torch.sigmoid(self.model(torch.from_numpy(np.array(ids[start : start + PREDICT_ROWS])))).numpy()
                for start in range(0, len(ids), PREDICT_ROWS)
            ]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def predict(self, rows: Any) -> NDArray[np.float32]:
        """Give the click probability of raw rows: a polars, pandas or pyarrow table, or a dict of columns."""
        return self.probabilities(self.encoder.encode(rows))


def save_model(
    path: Path,
    model: Model,
    weights: Saved,
    schema: Schema,
    vocabularies: Sequence[Vocabulary],
    metrics: dict[str, Any],
) -> None:
    """Write a model with its encoder to one file."""
    arrays: dict[str, Any] = {f"model.{name}": values for name, values in weights.items()}
    for index, vocabulary in enumerate(vocabularies):
        for name, kind in ARRAYS.items():
            arrays[f"vocabulary.{index}.{name}"] = np.asarray(getattr(vocabulary, name), dtype=kind)
    values = {"format": FORMAT, "version": VERSION, "model": model.config, "schema": schema.to_dict()}
    save_arrays(path, arrays, {**values, "metrics": metrics})


def read_history(path: Path) -> list[dict[str, Any]]:
    """Give the evaluations of a run, in order."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _vocabulary(arrays: Arrays, index: int) -> Vocabulary:
    found: dict[str, Any] = {name: arrays[f"vocabulary.{index}.{name}"] for name in ARRAYS}
    return Vocabulary(**{**found, "hashed": int(found["hashed"].item())})


def _load_weights(model: Model, weights: Arrays) -> None:
    import torch

    for name, parameter in model.named_parameters():
        if weights[name].shape != parameter.shape or weights[name].dtype != np.float32:
            raise ValueError(f"{name} has the shape {list(weights[name].shape)}, not {list(parameter.shape)}")
        parameter.data = torch.from_numpy(weights[name])
