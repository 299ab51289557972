"""The names of a log's columns, before its rows are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fm2.data.decompress import file_kind
from fm2.data.sources import find_files, is_frame
from fm2.data.text_files import SEPARATORS, first_line, is_libffm, split_line
from fm2.errors import Fm2Error


def check_distinct_names(source: Any) -> None:
    """Raise an error if two columns have the same name: an inferred schema has a field for each of them.

    >>> import pyarrow
    >>> check_distinct_names(pyarrow.table([[1], ["a"], ["b"]], names=["click", "x", "x"]))
    Traceback (most recent call last):
    fm2.errors.Fm2Error: infer: the pyarrow DataFrame has two columns 'x'; rename one of them
    """
    if is_frame(source):
        names, where = _frame_names(source), f"the {type(source).__module__.split('.')[0]} DataFrame"
    else:
        path = find_files(source)[0]
        names, where = ([] if file_kind(path) == "parquet" else _header(first_line(path)[0])), f"{path} line 1"
    known: set[Any] = set()
    for name in names:
        if name in known:
            raise Fm2Error(f"infer: {where} has two columns '{name}'; rename one of them")
        known.add(name)


def _header(line: str) -> Sequence[str]:
    return [] if is_libffm(line) else max((split_line(line, separator) for separator in SEPARATORS), key=len)


def _frame_names(frame: Any) -> Iterable[Any]:
    """Return the column names of a pandas or PyArrow table; those of a Polars frame are always distinct."""
    if type(frame).__module__.startswith("polars"):
        return []
    return getattr(frame, "column_names", None) or getattr(frame, "columns", [])
