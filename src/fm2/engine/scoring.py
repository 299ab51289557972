"""``fm2.load``: a compiled model at work."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.errors import Fm2Error
from fm2.machine import check_threads

LARGEST_ID = np.iinfo(np.int32).max


class Scorer:
    """A compiled model, mapped into memory. Any number of threads may use one.

    Values that training did not show, and values that cannot be read, are unknown. In a dict, a column that is not
    there is a missing value; in a table, it is an error. Columns that are no fields are passed over.
    """

    def __init__(self, path: str | Path, *, threads: int = 0, verify: bool = True) -> None:
        check_threads("load", threads)
        self.path, self.threads = Path(path), threads
        try:
            self._native = _native.open_compiled(str(path), verify, threads)
            described = self._native.section("meta")
        except OSError as wrong:
            raise Fm2Error(f"load: {wrong}") from wrong
        except ValueError as wrong:  # a column's name that is no text
            raise Fm2Error(f"load: {path} is no model that can be used: {wrong}") from wrong
        self.meta = _description(described, self.path)

    @property
    def columns(self) -> list[str]:
        """The columns that a row of raw values has."""
        return self._native.columns

    def predict(self, rows: Any) -> NDArray[np.float32]:
        """Give the click probabilities of rows.

        ``rows`` is a list of dicts, a dict of columns, a polars, pandas or pyarrow table, or an array of ids, rows ×
        fields.
        """
        logits = self.logits(rows).astype(np.float64)
        return np.exp(-np.logaddexp(0, -logits)).astype(np.float32)

    def predict_one(self, row: Mapping[str, Any]) -> float:
        """Give the click probability of one row, a dict of values by column."""
        return self._native.predict_one(row)

    def logits(self, rows: Any) -> NDArray[np.float32]:
        """Give the logits of rows."""
        ids = self.encode(rows)
        logits = np.empty(len(ids), np.float32)
        try:
            self._native.score(ids, logits, self.threads)
        except (IndexError, ValueError) as wrong:
            raise Fm2Error(f"predict: {wrong}") from wrong
        return logits

    def time(self, ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """Tell how many seconds the prediction of each row takes on its own, on one thread."""
        nanoseconds = np.empty(len(ids), np.float32)
        self._native.time_rows(ids, nanoseconds)
        return nanoseconds.astype(np.float64) * 1e-9

    def encode(self, rows: Any) -> NDArray[np.int32]:
        """Give the ids of rows; ids stay as they are."""
        if isinstance(rows, np.ndarray):
            if rows.dtype.kind not in "iu" or rows.ndim != 2:
                raise Fm2Error(f"predict: ids are whole numbers, rows × fields, not {rows.dtype} {list(rows.shape)}")
            if rows.dtype != np.int32 and rows.size and not 0 <= rows.min() <= rows.max() <= LARGEST_ID:
                raise Fm2Error(
                    f"predict: the ids go from {rows.min()} to {rows.max()}, further than those of any field"
                )
            return np.ascontiguousarray(rows, np.int32)
        if isinstance(rows, Mapping):
            rows = _records(rows)
        if isinstance(rows, Sequence):
            ids = np.empty((len(rows), len(self._native.sizes)), np.int32)
            self._native.encode_rows(list(rows), ids)
            return ids
        return self._encode_table(rows)

    def _encode_table(self, table: Any) -> NDArray[np.int32]:
        reader = _native.ArrowReader(table)
        places = {name: place for place, name in enumerate(reader.names)}
        missing = [name for name in self.columns if name not in places]
        if missing:
            raise Fm2Error(f"predict: the table has no column '{missing[0]}'")
        positions = [places[name] for name in self.columns]
        parts = [np.empty((0, len(self._native.sizes)), np.int32)]
        while reader.next():
            ids = np.empty((reader.rows, len(self._native.sizes)), np.int32)
            self._native.encode_table(reader, positions, self.threads, ids)
            parts.append(ids)
        return np.concatenate(parts)


def _description(text: bytes, path: Path) -> dict[str, Any]:
    """Read what a file says of its model; it may be anyone's."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise Fm2Error(f"load: {path} is no model that can be used: its description cannot be read: {wrong}") from wrong
    if not isinstance(found, dict):
        raise Fm2Error(f"load: {path} is no model that can be used: its description is a {type(found).__name__}")
    return found


def _records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Turn a dict of columns into a list of rows."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise Fm2Error("predict: the columns are not equally long")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def load(path: str | Path, *, threads: int = 0, verify: bool = True) -> Scorer:
    """Open a compiled model; ``verify`` reads all of it once, to compare its checksum."""
    return Scorer(path, threads=threads, verify=verify)
