"""Rows as callers hand them over: ids, dicts, columns, tables. Trained and compiled models take the same.

In a dict, a column that is not there is a missing value; in a table, it is an error. Columns that are no fields are
passed over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from fm2.data.ids import as_ids
from fm2.errors import Fm2Error, require

if TYPE_CHECKING:
    import polars

WHOLE = 9e15  # below it, what has no fraction is printed as a whole number


def normalize_rows(rows: Any, operation: str) -> Any:
    """Give rows in one of four forms: an array of ids, a list, a dict of columns that are equally long, or a table.

    >>> normalize_rows(({"site": "a"}, {"site": "b"}), "predict")
    [{'site': 'a'}, {'site': 'b'}]
    """
    if isinstance(rows, np.ndarray):
        return as_ids(rows, "rows × fields", operation)
    if isinstance(rows, Mapping):
        _check_columns(rows, operation)
        return rows
    if hasattr(rows, "collect_batches"):
        return rows.collect()
    if hasattr(rows, "__arrow_c_stream__"):
        return rows
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return list(rows)
    raise Fm2Error(f"{operation}: rows are dicts, a table, or an array of ids, not {type(rows).__name__}")


def _check_columns(columns: Mapping[str, Any], operation: str) -> None:
    if not columns:
        raise Fm2Error(f"{operation}: there are no columns")
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) == 0:
            raise Fm2Error(f"{operation}: the column '{name}' is a single value; one row is a list of one dict")
    if len({len(values) for values in columns.values()}) > 1:
        raise Fm2Error(f"{operation}: the columns are not equally long")


def is_missing(value: Any) -> bool:
    """Tell whether a value stands for none: None, no number, or what pandas has for it.

    >>> is_missing(float("nan")), is_missing("")
    (True, False)
    """
    named = type(value).__name__ in ("NAType", "NaTType")
    return value is None or named or (isinstance(value, float) and math.isnan(value))


def as_records(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Turn a dict of columns into a list of rows.

    >>> as_records({"site": ["a", "b"], "ad": [1, 2]})
    [{'site': 'a', 'ad': 1}, {'site': 'b', 'ad': 2}]
    """
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def as_table(rows: list[Any] | Mapping[str, Any], names: Sequence[str], operation: str) -> polars.DataFrame:
    """Turn a list of dicts, or a dict of columns, into a table of the columns of these names.

    >>> as_table([{"site": "a"}, {"ad": 2}], ["site", "ad"], "encode").rows()
    [('a', None), (None, 2)]
    """
    require("polars", "train", "encoding dicts")
    if isinstance(rows, Mapping):
        count = len(next(iter(rows.values())))
        columns = {name: rows.get(name, [None] * count) for name in names}
        known = any(name in rows for name in names)
    else:
        for row in rows:
            if not isinstance(row, Mapping):
                found = type(row).__name__
                raise Fm2Error(f"{operation}: a row is a dict of values by column, not '{found}'")
        columns = {name: [row.get(name) for row in rows] for name in names}
        known = all(any(name in row for name in names) for row in rows)
    if not known:
        raise Fm2Error(f"{operation}: a row has none of the model's columns")
    return _frame(columns, operation)


def _frame(columns: Mapping[str, Any], operation: str) -> polars.DataFrame:
    import polars

    return polars.DataFrame([_series(name, values, operation) for name, values in columns.items()])


def _series(name: str, values: Any, operation: str) -> polars.Series:
    """Make a column of values."""
    import polars

    if isinstance(values, list | tuple) or getattr(getattr(values, "dtype", None), "kind", "") == "O":
        values = _alike(name, values, operation)
    try:
        found = polars.Series(name, values, strict=False)
    except (TypeError, ValueError, OverflowError, polars.exceptions.PolarsError) as wrong:
        raise Fm2Error(f"{operation}: the column '{name}' cannot be read: {wrong}") from wrong
    return found.cast(polars.String) if found.dtype == polars.Null else found


def _alike(name: str, values: Sequence[Any], operation: str) -> list[Any]:
    """Give values of one kind, with None for missing ones; of several kinds, the texts that a log would have had."""
    plain = [_plain(value) for value in values]
    kinds = set()
    for value in plain:
        kind = None if value is None else next((kind for kind in _KINDS if isinstance(value, kind)), type(value))
        if kind is not None and kind not in _KINDS:
            found = f"the column '{name}' has a value of the type '{kind.__name__}'"
            raise Fm2Error(f"{operation}: {found}, which no field can be")
        kinds.add(kind)
    several = len({_KINDS[kind] for kind in kinds if kind is not None}) > 1
    return [None if value is None else _text(value) for value in plain] if several else plain


def _plain(value: Any) -> Any:
    if is_missing(value):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    return str(value) if isinstance(value, int) and abs(value) >> 63 else value  # no column has such numbers


# The first that a value is tells what it is like: a truth is an int of Python's, a time a day.
_KINDS: dict[type, str] = {
    bool: "truth",
    int: "number",
    float: "number",
    str: "text",
    bytes: "bytes",
    datetime: "time",
    date: "day",
}


def _text(value: Any) -> str:
    """Give the text of a value, as native code has it of a table's: of a time, "@" and its seconds.

    >>> [_text(value) for value in ("a", True, 1e5, 0.25, 1e-5, datetime(1970, 1, 2))]
    ['a', 'true', '100000', '0.25', '1e-05', '@86400']
    """
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE:
        return str(int(value))
    if isinstance(value, float):
        fixed = np.format_float_positional(value, trim="-")
        return min(fixed, np.format_float_scientific(value, trim="-", exp_digits=2), key=len)
    if isinstance(value, date):
        when = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        return f"@{math.floor((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())}"
    return str(value)
