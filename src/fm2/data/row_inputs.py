"""Rows as callers pass them: ids, dicts, columns or DataFrames. Trained and compiled models accept the same."""

from __future__ import annotations

import contextlib
import math
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error, closest, printable, warn
from fm2.schema import Field

LARGEST_ID = np.iinfo(np.int32).max
SIMILAR = 0.7  # of a misspelled column, as difflib measures it
NATIVE = (TypeError, LookupError, ValueError)  # errors of native code
DIGITS = str.maketrans("", "", string.digits)


def check_column_names(frame: Any, where: str) -> None:
    """Raise an error if a column name of a polars frame contains NUL: exporting it would abort the process."""
    for name in frame.collect_schema().names() if hasattr(frame, "collect_schema") else ():
        if "\0" in name:
            raise Fm2Error(f"{where}: the column name '{printable(name)}' contains NUL; rename the column")


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
        check_column_names(rows, f"{operation}: the DataFrame")
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
    except NATIVE as error:
        raise Fm2Error(f"{operation}: {error.args[0] if isinstance(error, KeyError) else error}") from error


def first_failure(rows: Sequence[Any], encode: Callable[[Any], object]) -> int | None:
    """Return the index of the first row that cannot be encoded, if there are several rows."""
    for index, row in enumerate(rows if len(rows) > 1 else ()):
        try:
            encode(row)
        except NATIVE:
            return index
    return None


@contextlib.contextmanager
def library_errors(problem: str) -> Iterator[None]:
    """Convert any error of a DataFrame library to an :class:`Fm2Error` of one line, which starts with ``problem``."""
    try:
        yield
    except (Fm2Error, MemoryError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is not an Exception
        text = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        reason = (text.splitlines() or [type(error).__name__])[0]
        raise Fm2Error(f"{problem}: {reason}") from error


class KeyCheck:
    """Warn about misspelled columns in the first rows.

    A column that is absent from a row is a missing value, and a key that is not a column is ignored. A row with a key
    that resembles an absent column is probably a mistake. The caller ends the checks, once rows could be used, by
    setting ``pending`` to False.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as shown:
    ...     warnings.simplefilter("always")
    ...     KeyCheck(["user", "site"])([{"usr": 1, "site": 2, "label": 0}], "predict")
    >>> str(shown[0].message)
    "predict: unknown key 'usr'; did you mean 'user'? A column that is absent from a row is a missing value"
    """

    def __init__(self, columns: Sequence[str], others: Sequence[str] = ()) -> None:
        """``columns`` are those of a row; ``others`` may be in it as well."""
        self.pending = True
        self._columns = columns
        self._known = {*columns, *others}

    def __call__(self, rows: Iterable[Any], operation: str) -> None:
        """Report the first of these rows with a misspelled column, while checks are pending."""
        if self.pending:
            for row in rows:
                if isinstance(row, Mapping) and (misspelled := self._misspelled(row)):
                    for key, column in misspelled.items():
                        explained = "A column that is absent from a row is a missing value"
                        warn(f"{operation}: unknown key '{printable(key)}'; did you mean '{column}'? {explained}")
                    return

    def _misspelled(self, row: Mapping[Any, Any]) -> dict[str, str]:
        """Return the column that each misspelled key is meant to be."""
        unknown = [key for key in row if isinstance(key, str) and key not in self._known]
        absent = [name for name in self._columns if name not in row] if unknown else []
        if len(absent) == len(self._columns):  # an error soon
            return {}
        return {key: column for key in unknown if (column := _closest(key, absent)) is not None}


def _closest(key: str, columns: Sequence[str]) -> str | None:
    """Return the column that a key is probably meant to be; columns that differ only in a number are not."""
    different = [name for name in columns if _without_digits(name) != _without_digits(key)]
    same = [name for name in columns if name.casefold() == key.casefold()]
    return closest(key, same or different, SIMILAR)


def _without_digits(name: str) -> str:
    return name.translate(DIGITS)


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
