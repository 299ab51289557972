"""A first schema for a table nobody has described: a look at its first rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.data.sources import (
    SEPARATORS,
    find_columns,
    find_files,
    first_line,
    is_libffm,
    is_table,
    open_parquet,
    split_line,
)
from fm2.data.streams import head, open_stream, packing
from fm2.errors import Fm2Error, require
from fm2.schema import Field, Schema

SAMPLE_ROWS = 10_000
FEW_VALUES = 20
TIME_FORMATS = {
    "%Y-%m-%d %H:%M:%S": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
    "%Y-%m-%dT%H:%M:%S": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"),
    "%Y-%m-%dT%H:%M:%SZ": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "%Y-%m-%d": re.compile(r"\d{4}-\d\d-\d\d"),
    "unix": re.compile(r"1[0-9]{9}"),
    "unix_ms": re.compile(r"1[0-9]{12}"),
}
MOSTLY = 0.95  # of the values must look alike; the others are then bad rows, not silently unknown
CODE = re.compile(r"0\d+")  # a leading zero: the digits are a name, not a number
INTEGER = re.compile(r"[+-]?\d+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
IDENTIFIER = re.compile(r"(^|_)(id|ids|key|code|hash)$|Id$|ID$")


def infer_schema(source: Any, label: str, min_count: int) -> Schema:
    """Suggest a schema: times by their look, numbers that are quantities, and categories for the rest.

    A column of integers is a quantity if it has many different values, no leading zeros, and a name that does not end
    like an identifier's; it gets the paper's transform. Other numbers are cut at their quantiles. One value in twenty
    may look otherwise.

    >>> import polars
    >>> table = polars.DataFrame({"click": [0, 1] * 20, "price": [i / 7 for i in range(40)], "ad_id": range(40)})
    >>> [(field.name, field.kind) for field in infer_schema(table, "click", min_count=4).fields]
    [('price', 'numeric'), ('ad_id', 'categorical')]
    """
    columns = _sample_table(source) if is_table(source) else _sample_file(find_files(source)[0], label)
    find_columns(list(columns), [label], "infer: the table")
    fields = [_field(name, values, min_count) for name, values in columns.items() if name != label]
    return Schema(fields, label=label)


def _field(name: str, values: Sequence[str], min_count: int) -> Field:
    present = [value for value in values if value]

    def mostly(pattern: re.Pattern[str]) -> bool:
        return sum(pattern.fullmatch(value) is not None for value in present) >= MOSTLY * len(present)

    if not present:
        return Field(name, min_count=min_count)
    for format, pattern in TIME_FORMATS.items():
        if mostly(pattern):
            return Field(name, "timestamp", format=format, min_count=min_count)
    many = len(set(present)) > FEW_VALUES and not IDENTIFIER.search(name) and not mostly(CODE)
    if many and mostly(INTEGER):
        return Field(name, "numeric", min_count=min_count)
    if many and mostly(NUMBER):
        return Field(name, "numeric", transform="quantiles", min_count=min_count)
    return Field(name, min_count=min_count)


def _sample_table(table: Any) -> dict[str, list[str]]:
    polars = require("polars", "train", "looking at a table")
    if not hasattr(table, "collect_batches"):
        table = (table if isinstance(table, polars.DataFrame) else polars.from_arrow(table)).lazy()
    frame = table.head(SAMPLE_ROWS).collect()
    texts = {}
    for column in frame.get_columns():
        if column.dtype.is_temporal() and column.dtype != polars.Time:
            column = column.cast(polars.Datetime).dt.strftime("%Y-%m-%d %H:%M:%S")
        texts[column.name] = [value or "" for value in column.cast(polars.String).to_list()]
    return texts


def _sample_file(path: Path, label: str) -> dict[str, list[str]]:
    if packing(path) == "parquet":
        return _sample_table(open_parquet(path).table)
    line, size = first_line(path)
    if is_libffm(line):
        return {label: ["0"]} | {field: [] for field in _libffm_fields(path)}
    names = max((split_line(line, separator) for separator in SEPARATORS), key=len)
    separator = next(mark for mark in SEPARATORS if split_line(line, mark) == names)
    find_columns(names, [label], f"{path} line 1")
    if len(names) < 2:
        raise Fm2Error(f"{path} line 1 has only one column; a table needs a label and a field")
    text = head(path)[size:].decode(errors="replace")
    whole = text[: text.rfind("\n") + 1] or text
    rows = (split_line(row, separator) for row in whole.splitlines()[:SAMPLE_ROWS] if row)
    whole_rows = [row for row in rows if len(row) == len(names)]
    return {name: [row[place] for row in whole_rows] for place, name in enumerate(names)}


def _libffm_fields(path: Path) -> list[str]:
    """Read a whole libffm file for its fields, for a rare one may appear late."""
    fields: set[bytes] = set()
    with open_stream(path) as (stream, _):
        for line in stream:
            fields.update(item.partition(b":")[0] for item in line.split()[1:])
    numbers = sorted((field.decode(errors="replace") for field in fields), key=lambda field: (len(field), field))
    return [number for number in numbers if number.isdigit()]
