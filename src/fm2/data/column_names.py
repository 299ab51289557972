"""The names of a log's columns: an inferred schema has a field for each of them, so they must be distinct."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fm2.errors import Fm2Error


def check_distinct(names: Iterable[Any], where: str) -> None:
    """Raise an error, which says ``where``, if two columns have the same name.

    >>> check_distinct(["click", "x", "x"], "log.csv line 1")
    Traceback (most recent call last):
    fm2.errors.Fm2Error: infer: log.csv line 1 has two columns 'x'; rename one of them
    """
    known: set[Any] = set()
    for name in names:
        if name in known:
            raise Fm2Error(f"infer: {where} has two columns '{name}'; rename one of them")
        known.add(name)


def check_distinct_columns(frame: Any) -> None:
    """Raise an error if two columns of a table have the same name, which Polars does not allow.

    >>> import pyarrow
    >>> check_distinct_columns(pyarrow.table([[1], ["a"], ["b"]], names=["click", "x", "x"]))
    Traceback (most recent call last):
    fm2.errors.Fm2Error: infer: the pyarrow table has two columns 'x'; rename one of them
    """
    library = type(frame).__module__.split(".")[0]
    if library == "pyarrow":  # a table, a batch or a reader of batches
        check_distinct(frame.schema.names, "the pyarrow table")
    elif library != "polars":
        check_distinct(getattr(frame, "columns", ()), f"the {library} DataFrame")
