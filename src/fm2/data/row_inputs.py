"""Rows as callers pass them: ids, dicts, columns or DataFrames. Trained and compiled models accept the same."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.schema import Field

LARGEST_ID = np.iinfo(np.int32).max


def normalize_rows(rows: Any, operation: str) -> Any:
    """Return rows as an array of ids, a list of dicts, or a DataFrame."""
    if isinstance(rows, np.ndarray):
        return as_ids(rows, "rows × fields", operation)
    if isinstance(rows, Mapping):
        _check_columns(rows, operation)
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    if hasattr(rows, "collect_batches"):
        return rows.collect()
    if hasattr(rows, "__arrow_c_stream__"):
        return rows
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return list(rows)
    expected = "dicts, a dict of columns, a DataFrame or an array of ids"
    raise Fm2Error(f"{operation}: rows must be {expected}, got {type(rows).__name__}")


def as_ids(array: NDArray[Any], shape: str, operation: str) -> NDArray[np.int32]:
    """Convert integers to an array of ids; ``shape`` names the dimensions that the array must have."""
    if array.dtype.kind not in "iu" or array.ndim != len(shape.split(" × ")):
        raise Fm2Error(f"{operation}: ids must be integers of shape {shape}, got {array.dtype} {list(array.shape)}")
    if array.dtype != np.int32 and array.size and not 0 <= array.min() <= array.max() <= LARGEST_ID:
        raise Fm2Error(f"{operation}: ids must be between 0 and {LARGEST_ID}, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, np.int32)


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, or a missing value of pandas."""
    missing_in_pandas = type(value).__name__ in ("NAType", "NaTType")
    return value is None or missing_in_pandas or (isinstance(value, float) and math.isnan(value))


@contextlib.contextmanager
def native_errors(operation: str) -> Iterator[None]:
    """Convert errors of native code to :class:`Fm2Error`."""
    try:
        yield
    except (TypeError, LookupError, ValueError) as error:
        raise Fm2Error(f"{operation}: {error.args[0] if isinstance(error, KeyError) else error}") from error


def _check_columns(columns: Mapping[str, Any], operation: str) -> None:
    if not columns:
        raise Fm2Error(f"{operation}: there are no columns")
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
            raise Fm2Error(f"{operation}: column '{name}' is a single value; pass one row as a list of one dict")
    if len({len(values) for values in columns.values()}) > 1:
        raise Fm2Error(f"{operation}: the columns differ in length")


def check_lists(rows: EncodedRows, fields: Sequence[Field], operation: str) -> None:
    """Raise an error unless rows have lists for exactly the list fields among these fields."""
    for index, setting in enumerate(fields):
        if setting.is_list and index not in rows.lists:
            expected = "pass raw values, or EncodedRows with its lists"
            raise Fm2Error(f"{operation}: field '{setting.name}' has several features per row; {expected}")
        if index in rows.lists and not setting.is_list:
            raise Fm2Error(f"{operation}: field '{setting.name}' has one feature per row, not lists")
