"""Run: a trained model with its encoder, and the files of its directory."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2.artifacts.calibration import Calibration, read_calibration, save_calibration
from fm2.artifacts.model_file import MODEL, ModelFile, open_model, save_model
from fm2.artifacts.run_directory import CALIBRATION
from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.row_inputs import check_lists
from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.evaluation.evaluate import evaluate_split
from fm2.evaluation.id_mapping import IdMap, make_id_map, map_ids
from fm2.evaluation.metrics import sigmoid
from fm2.models import FactorizationMachine, Model, build
from fm2.remote.paths import local_path, writes
from fm2.training.backend import to_numpy
from fm2.training.scorer import ModelScorer, make_scorer, torch_threads

PREDICT_ROWS = 8192


class Run:
    """A trained model that reads raw rows, opened from a directory that :func:`fm2.train` wrote.

    The model file contains everything it needs: weights, vocabularies and schema. The other files of the directory
    document the training. ``threads`` is the number of threads for scoring; 0 means one per processor.
    ``negative_rate`` is the share of the rows without a click in training, for which the bias is already corrected.
    """

    def __init__(
        self,
        path: Path,
        model: Model,
        encoder: Encoder,
        metrics: dict[str, Any],
        threads: int = 0,
        negative_rate: float = 1.0,
        calibration: Calibration | None = None,
    ) -> None:
        self.path, self.model, self.encoder, self.metrics, self.threads = path, model, encoder, metrics, threads
        self.negative_rate, self.calibration = negative_rate, calibration

    def __repr__(self) -> str:
        quality = f"AUC {self.metrics['auc']:.4f}, log loss {self.metrics['log_loss']:.4f}"
        return f"Run({str(self.path)!r}: {self.model.name}, {self.model.n_parameters:,} parameters; {quality})"

    @classmethod
    def open(cls, path: str | Path, threads: int = 0) -> Run:
        """Open the best model of a run."""
        path = local_path(path)
        with open_model(path) as file:
            model = build(file.config, seed=None)
            _load_weights(model, file)
            encoder = Encoder(file.schema, file.vocabularies)
        calibration = read_calibration(path, model.field_sizes, encoder.schema.fields)
        return cls(path, model.eval(), encoder, file.metrics, threads, file.negative_rate, calibration)

    @classmethod
    def of(cls, run: Run | str | Path) -> Run:
        """Return ``run`` itself, or open the run at this path."""
        return run if isinstance(run, Run) else cls.open(run)

    def evaluate(self, dataset: Dataset | str | Path, split: str = "test") -> dict[str, Any]:
        """Evaluate the model on a split of a dataset: the one it was trained on, or a later one.

        In another dataset, values are matched by their text. Values that the model does not know, or that the dataset
        dropped as too rare, count as unknown. Hashed, transformed and bucketed fields need the same encoding; use
        ``fm2 prepare --like``, which also keeps all values that the older dataset knew.
        """
        return evaluate_split(self, dataset, split)

    def id_map(self, dataset: Dataset, operation: str = "evaluate") -> IdMap | None:
        """Return the model's id for each id of a dataset, field by field, or None if all ids are the same."""
        return make_id_map(self.encoder, dataset, self.path, operation)

    def probabilities(self, rows: EncodedRows | NDArray[np.int32], id_map: IdMap | None = None) -> NDArray[np.float32]:
        """Return the calibrated click probabilities of encoded rows; ``id_map`` translates their ids to the model's."""
        logits = self.logits(rows, id_map)
        if self.calibration is None:
            return sigmoid(logits).astype(np.float32)
        return sigmoid(self.calibration.apply(logits, map_ids(EncodedRows.of(rows), id_map))).astype(np.float32)

    def logits(self, rows: EncodedRows | NDArray[np.int32], id_map: IdMap | None = None) -> NDArray[np.float32]:
        """Return the model's logits of encoded rows, without calibration; ``id_map`` translates their ids."""
        rows = EncodedRows.of(rows)
        fields = self.encoder.schema.fields
        if rows.ids.ndim != 2 or rows.ids.shape[1] != len(fields):
            raise Fm2Error(f"predict: ids must have the shape rows × {len(fields)} fields, got {list(rows.ids.shape)}")
        check_lists(rows, fields, "predict")
        logits = [np.empty(0, np.float32)]
        for start in range(0, len(rows), PREDICT_ROWS):
            try:
                with torch_threads(self.threads):
                    logits.append(self._scorer.score(map_ids(rows[start : start + PREDICT_ROWS], id_map)))
            except IndexError as error:
                raise Fm2Error(f"predict: rows from {start:,} do not fit the model of {self.path}: {error}") from error
        return np.concatenate(logits)

    @functools.cached_property
    def _scorer(self) -> ModelScorer:
        return make_scorer(self.model, self.threads)

    def predict(self, rows: Any) -> NDArray[np.float32]:
        """Return the click probabilities of rows, calibrated if the run is (:func:`fm2.calibrate`).

        ``rows`` is a list of dicts, a dict of columns, a polars, pandas or pyarrow table, an array of ids, rows ×
        fields, as for a compiled model, or encoded rows with the lists of multi-valued fields.
        """
        encoded = rows if isinstance(rows, EncodedRows) else self.encoder.encode_rows(rows, self.threads)
        return self.probabilities(encoded)

    @writes("directory")
    def save(self, directory: str | Path) -> None:
        """Write the model, with its calibration, to a directory, which can then be opened as a run."""
        weights = {name: to_numpy(value) for name, value in self.model.learned().items()}
        encoding = (self.encoder.schema, self.encoder.vocabularies)
        save_model(Path(directory) / MODEL, self.model, weights, *encoding, self.metrics, self.negative_rate)
        if self.calibration:
            save_calibration(Path(directory), self.calibration)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the run as the bytes of its files, which are read like those of any other run."""
        with tempfile.TemporaryDirectory() as directory:
            self.save(directory)
            return _from_bytes, (
                self.path,
                {file.name: file.read_bytes() for file in Path(directory).iterdir()},
                self.threads,
            )


def _from_bytes(path: Path, files: dict[str, bytes], threads: int) -> Run:
    with tempfile.TemporaryDirectory() as directory:
        for name in files.keys() & {MODEL, CALIBRATION}:
            (Path(directory) / name).write_bytes(files[name])
        run = Run.open(directory, threads)
    run.path = path
    return run


def _load_weights(model: Model, file: ModelFile) -> None:
    for name, value in model.learned().items():
        value.data = torch.from_numpy(file.weights(name, value.shape))
    if isinstance(model, FactorizationMachine) and not model.interaction.has_zeros_where_fixed():
        raise ValueError("a field matrix has other elements than its form or pruning allows")
