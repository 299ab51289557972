"""``fm2.load``: score, rank and explain rows with a compiled model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.artifacts.calibration import Calibration
from fm2.artifacts.model_file import MODEL
from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.row_inputs import (
    NATIVE,
    KeyCheck,
    as_ids,
    check_lists,
    first_failure,
    library_errors,
    native_errors,
    normalize_rows,
)
from fm2.data.rows import EncodedRows, ListArrays, Lists
from fm2.data.text_files import find_columns
from fm2.data.vocabulary import Vocabulary
from fm2.engine.dense import GRAPH, DensePart
from fm2.engine.explanation import Explanation, make_explanation, missing_fields
from fm2.engine.metadata import read_metadata
from fm2.engine.plans import DTYPES
from fm2.engine.ranker import Ranker
from fm2.errors import Fm2Error, not_found
from fm2.evaluation.evaluate import evaluate_split
from fm2.evaluation.metrics import sigmoid
from fm2.files import check_utf8
from fm2.models.registry import get_spec, specs
from fm2.models.spec import ModelSpec
from fm2.remote.paths import local_path


class Scorer:
    """A compiled model, mapped into memory. Any number of threads may use the same scorer.

    Values that did not occur in training, or cannot be parsed, are unknown. A column that is absent from a dict is a
    missing value; a column that is absent from a table is an error. Other columns are ignored, but the first dict is
    checked for misspelled columns (:class:`fm2.Fm2Warning`).
    """

    def __init__(self, path: str | Path, *, threads: int = 0, verify: bool = True) -> None:
        check_threads("load", threads)
        check_utf8(path, "load")
        path = self.path = local_path(path)
        self.threads = threads
        if self.path.is_dir():
            raise Fm2Error(f"load: {path} is a directory, not a file; fm2 compile turns a run into a model file")
        if self.path.name == MODEL:
            raise Fm2Error(
                f"load: {path} is a file of a run; fm2 compile turns the run {self.path.parent} into a model file"
            )
        try:
            self.native = _native.open_compiled(str(path), verify, threads)
            self.meta, self.schema = read_metadata(self.native, self.path)
        except OSError as error:
            if "\0" not in str(path) and not self.path.exists():
                raise not_found("load: compiled model", path, "fm2 compile writes one") from error
            raise Fm2Error(f"load: {error}") from error
        except ValueError as error:
            raise Fm2Error(f"load: {path}: not a valid compiled model: a column name is not UTF-8: {error}") from error
        self._open_dense_part()
        self.calibration = self._read_calibration()
        self._check_keys, self._unchecked = KeyCheck(self.columns), True  # every prediction looks at the second one

    def _open_dense_part(self) -> None:
        """Open the layers of a network that native code does not compute."""
        width = _native.network_width(self.native)
        if width is not None:
            part = DensePart(self.native.section(GRAPH), width, self.path, self.threads)
            _native.set_dense(self.native, part)

    @property
    def is_network(self) -> bool:
        """Whether the model is a network, whose logit is not a sum of terms of fields and pairs of fields."""
        return self.spec.is_network

    @property
    def spec(self) -> ModelSpec:
        """The declaration of the model."""
        return get_spec(self.meta["model"]["model"])

    @property
    def columns(self) -> list[str]:
        """The columns of a raw row."""
        return self.native.columns

    @property
    def negative_rate(self) -> float:
        """The share of the rows without a click in training, which the model's bias is corrected for."""
        return float(self.meta.get("negative_rate", 1.0))

    @property
    def fingerprint(self) -> str:
        """A checksum that identifies the model."""
        return self.native.checksum

    @property
    def dtype(self) -> str:
        """The type of the stored numbers: f32, f16 or i8."""
        return tuple(DTYPES)[int(self._section("plan", np.int64)[1])]

    @property
    def field_order(self) -> list[int]:
        """The order of the fields in a plan with field matrices; empty for other plans."""
        return self._section("order", np.int32).tolist() if self.native.has_section("order") else []

    def ranker(self, context: Sequence[str] = (), candidate: Sequence[str] = ()) -> Ranker:
        """Return a ranker for candidates that share a context.

        ``context`` and ``candidate`` divide the columns; one of them may be left out. The context's part of the score
        is computed only once for all candidates; of a network, that is encoding it and looking its embeddings up.
        """
        context = context or [name for name in self.columns if name not in candidate]
        candidate = candidate or [name for name in self.columns if name not in context]
        return Ranker(self, context, candidate)

    def predict(self, rows: Any) -> NDArray[np.float32]:
        """Return the click probabilities of rows, calibrated if the run was (:func:`fm2.calibrate`).

        ``rows`` is a list of dicts, a dict of columns, a polars, pandas or pyarrow table, an array of ids of shape
        [rows, fields], or :class:`fm2.EncodedRows`, which a model with multi-valued fields needs instead of an array.
        """
        encoded = self._encode(rows)
        logits = self.logits(encoded)
        if self.calibration is None:
            return sigmoid(logits).astype(np.float32)
        return sigmoid(self.calibration.apply(logits, encoded)).astype(np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the checksum of the file, which the other process opens."""
        return _reopen, (self.path.resolve(), self.fingerprint, self.threads)

    def probabilities(self, rows: EncodedRows) -> NDArray[np.float32]:
        """Return the click probabilities of encoded rows."""
        return self.predict(rows)

    def evaluate(self, dataset: Dataset | str | Path, split: str = "test") -> dict[str, Any]:
        """Return the metrics of the model on a split of a dataset."""
        return evaluate_split(self, dataset, split)

    @functools.cached_property
    def encoder(self) -> Encoder:
        """An encoder for files of raw rows, with its own copy of the vocabularies."""
        try:
            for vocabulary in self.vocabularies:
                vocabulary.check()
            return Encoder(self.schema, self.vocabularies)
        except (ValueError, LookupError, RuntimeError) as error:
            raise Fm2Error(f"load: {self.path}: not a valid compiled model: {error}") from error

    @functools.cached_property
    def vocabularies(self) -> list[Vocabulary]:
        """The values of each field."""
        counts = self._section("vocabulary.counts", np.uint64).reshape(-1, 3).astype(np.int64)
        boundary_counts = self._section("encoder.fields", np.int32).reshape(len(counts), -1)[:, 3]
        owned = [self.schema.fields[owner].hash_bits for owner in self.schema.owners]
        by_field = zip(
            np.split(self._section("vocabulary.bytes", np.uint8), np.cumsum(counts[:-1, 2])),
            np.split(self._section("vocabulary.ends", np.uint64), np.cumsum(counts[:-1, 1])),
            [np.empty(0, np.int64)] * len(counts),  # the file has no frequencies
            np.split(self._section("encoder.boundaries", np.float32), np.cumsum(boundary_counts[:-1])),
            [1 << hash_bits if hash_bits else 0 for hash_bits in owned],
            self._trees(),
            strict=True,
        )
        return [Vocabulary(*parts) for parts in by_field]

    def _trees(self) -> list[NDArray[np.uint32]]:
        """Return the trees of each field; opening the file has checked the section."""
        by_field = [np.empty(0, np.uint32) for _ in self.schema.fields]
        left = self._section("trees", np.uint32) if self.native.has_section("trees") else by_field[0]
        while len(left):
            field, parts, words = left[:3].tolist()
            by_field[field] = left[3 + parts : 3 + parts + words]
            left = left[3 + parts + words :]
        return by_field

    def _read_calibration(self) -> Calibration | None:
        """Return the calibration, which opening the file has checked."""
        if not self.native.has_section("calibration.knots"):
            return None
        types: dict[str, type[np.generic]] = {
            "calibration.knots": np.float64,
            "calibration.field": np.int32,
            "calibration.shifts": np.float32,
        }
        arrays = {name: self._section(name, dtype) for name, dtype in types.items() if self.native.has_section(name)}
        arrays["calibration.knots"] = arrays["calibration.knots"].reshape(-1, 2)
        return Calibration.from_sections(arrays, self.native.sizes, self.schema.fields)

    def _section(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        return self.native.map_section(name).view(dtype)

    def predict_one(self, row: Mapping[str, Any]) -> float:
        """Return the click probability of one row, a dict of values by column."""
        if self._unchecked:
            return self._predict_first(row)
        try:
            return self.native.predict_one(row)
        except (TypeError, KeyError, ValueError):
            with native_errors("predict"):  # not around the call: it would take longer than the prediction
                raise

    def _predict_first(self, row: Mapping[str, Any]) -> float:
        """Predict a row and check its keys. If that fails, the next row is checked, too."""
        self._check_keys([row], "predict")
        self._unchecked = False
        try:
            probability = self.predict_one(row)
        except Fm2Error:
            self._unchecked = True
            raise
        self._check_keys.pending = False
        return probability

    def logits(self, rows: Any) -> NDArray[np.float32]:
        """Return the model's logits of rows, without calibration, in any form that :meth:`predict` takes."""
        encoded = self._encode(rows)
        logits = np.empty(len(encoded), np.float32)
        with native_errors("predict"):
            self.native.score(encoded.ids, logits, self.threads, lists=encoded.native_lists())
        return logits

    def explain(self, row: Any) -> Explanation:
        """Return the contribution of each field and each pair of fields to the logit of a row, without calibration.

        ``row`` is a dict of values by column, an array of ids, or :class:`fm2.EncodedRows` with one row.
        """
        if self.is_network:
            raise Fm2Error(
                f"explain: {self.spec.name} is a network: its logit is not a sum of contributions of fields and pairs "
                f"of fields; explain one of {', '.join(spec.name for spec in specs() if not spec.is_network)}"
            )
        if not isinstance(row, Mapping | EncodedRows):
            row = np.asarray(row).reshape(1, -1)
        encoded = self._encode([row] if isinstance(row, Mapping) else row, "explain")
        if len(encoded) != 1:
            raise Fm2Error(f"explain: expected one row, got {len(encoded)}")
        missing = missing_fields(self.schema, row) if isinstance(row, Mapping) else set()
        return make_explanation(self.native, self.schema, self.vocabularies, encoded, missing)

    def measure_latency(self, rows: Any) -> NDArray[np.float64]:
        """Return how many seconds it takes to score each row on its own, on one thread, without encoding it."""
        encoded = self._encode(rows)
        nanoseconds = np.empty(len(encoded), np.float32)
        with native_errors("predict"):
            self.native.measure_rows(encoded.ids, nanoseconds, encoded.native_lists())
        return nanoseconds.astype(np.float64) * 1e-9

    def encode(self, rows: Any, columns: Sequence[str] | None = None) -> NDArray[np.int32] | EncodedRows:
        """Return the ids of rows, in any form that :meth:`predict` takes.

        The result is an array, or :class:`fm2.EncodedRows` if the model has multi-valued fields. With ``columns``,
        rows need only these columns; all others are missing.
        """
        encoded = self.encode_rows(rows, columns)
        return encoded if any(self.native.lists) else encoded.ids

    def encode_rows(
        self, rows: Any, columns: Sequence[str] | None = None, *, operation: str = "predict"
    ) -> EncodedRows:
        """Encode rows like :meth:`encode`; the result always includes the lists."""
        if isinstance(rows, EncodedRows):
            return EncodedRows(as_ids(rows.ids, "rows × fields", operation), rows.lists)
        rows = normalize_rows(rows, operation)
        if isinstance(rows, np.ndarray):
            return EncodedRows(rows)
        if not isinstance(rows, list):
            return self._encode_table(rows, self.columns if columns is None else columns)
        check_keys = bool(rows) and columns is None and self._check_keys.pending
        if check_keys:
            self._check_keys(rows[:1], operation)
        ids = np.empty((len(rows), len(self.native.sizes)), np.int32)
        try:
            lists = self.native.encode_rows(rows, ids)
        except NATIVE:
            index = first_failure(rows, lambda row: self.native.encode_rows([row], ids[:1]))
            with native_errors(operation if index is None else f"{operation}: row {index}"):
                raise
        if check_keys:
            self._check_keys.pending = self._unchecked = False
        return EncodedRows(ids, _lists_by_field(lists))

    def _encode(self, rows: Any, operation: str = "predict") -> EncodedRows:
        """Encode rows and check that they have lists for the multi-valued fields."""
        encoded = self.encode_rows(rows, operation=operation)
        check_lists(encoded, self.schema.fields, operation)
        return encoded

    def _encode_table(self, table: Any, columns: Sequence[str]) -> EncodedRows:
        batches = []
        with library_errors("predict: cannot read the table"):
            reader = _native.ArrowReader(table)
            positions = dict(zip(columns, find_columns(reader.names, columns, "predict: the table"), strict=True))
            sources = [positions.get(name) for name in self.columns]
            while reader.next():
                ids = np.empty((reader.rows, len(self.native.sizes)), np.int32)
                with native_errors("predict"):
                    lists = self.native.encode_table(reader, sources, self.threads, ids)
                batches.append(EncodedRows(ids, _lists_by_field(lists)))
        return EncodedRows.concatenate(batches) if batches else self._no_rows()

    def _no_rows(self) -> EncodedRows:
        empty = {index: Lists.of([]) for index, is_list in enumerate(self.native.lists) if is_list}
        return EncodedRows(np.empty((0, len(self.native.sizes)), np.int32), empty)


def _lists_by_field(lists: Sequence[ListArrays | None]) -> dict[int, Lists]:
    return {index: Lists(*arrays) for index, arrays in enumerate(lists) if arrays is not None}


def _reopen(path: Path, fingerprint: str, threads: int) -> Scorer:
    scorer = Scorer(path, threads=threads, verify=False)  # it was verified when it was opened first, if at all
    if scorer.fingerprint != fingerprint:
        raise Fm2Error(f"load: {path} is another model than the one that was pickled")
    return scorer


def load(path: str | Path, *, threads: int = 0, verify: bool = True) -> Scorer:
    """Open a compiled model.

    ``threads`` limits the threads of a call (0: all processors). ``verify`` reads the complete file once to check its
    checksum.
    """
    return Scorer(path, threads=threads, verify=verify)
