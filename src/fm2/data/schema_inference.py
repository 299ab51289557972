"""Suggest a schema from the first rows of a log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fm2.data.column_names import check_distinct, check_distinct_columns
from fm2.data.decompress import START_BYTES, file_kind, open_stream, read_start
from fm2.data.list_inference import ListColumn, infer_list, libffm_lists, list_column, share_vocabularies
from fm2.data.missing_inference import NUMBER, missing_markers
from fm2.data.numbers import are_quantities
from fm2.data.row_identifiers import identifies_rows, warn_left_out
from fm2.data.row_inputs import library_errors
from fm2.data.sources import find_files, is_frame, open_parquet
from fm2.data.text_files import SEPARATORS, find_columns, first_line, is_libffm, split_line
from fm2.data.time_inference import MOSTLY, infer_time_format
from fm2.errors import Fm2Error, require
from fm2.field import DATE_FORMAT, DEFAULT_TIME_FORMAT
from fm2.remote.streams import LogFile
from fm2.schema import Field, Schema

SAMPLE_ROWS = 10_000
FEW_VALUES = 20
FEWEST_OF_CATEGORY = 4  # rows; most values of amounts have fewer
CODE = re.compile(r"0\d+")  # a leading zero means an identifier, not a number
IDENTIFIER = re.compile(r"(^|_)(id|ids|key|code|hash)$|Id$|ID$")


def infer_schema(source: Any, label: str, min_count: int, weight: str = "", impressions: str = "") -> Schema:
    """Suggest a schema: timestamp and numeric fields where the values match, and categorical fields otherwise.

    Columns of lists are multi-valued, and so are columns of text in which a separator (``| ; ,`` or a blank) divides
    most cells into values that occur again and again. Lists of the values of one other column, such as a history of
    items, share its vocabulary and embeddings.

    A column of numbers is numeric if it has many distinct values, no leading zeros, and a name that does not end like
    an identifier (``ad_id``). Integers must also be distributed like counts or amounts, unlike identifiers. Up to 5%
    of the values may not match.

    Texts such as NA in a column of numbers are ``missing`` values.

    A column in which no value occurs twice identifies rows. It is left out with a warning, unless there is no other.
    """
    columns = _sample_frame(source) if is_frame(source) else _sample_file(find_files(source)[0], label)
    targets = [name for name in (label, weight, impressions) if name]
    find_columns(list(columns), targets, "infer: the log")
    texts = {
        name: cells for name, cells in columns.items() if name not in targets and not isinstance(cells, ListColumn)
    }
    missing = missing_markers(texts.values())
    columns = {**columns, **{name: _without(cells, missing) for name, cells in texts.items()}}
    fields = [_infer_field(name, values, min_count) for name, values in columns.items() if name not in targets]
    fields = _leave_out_identifiers(fields, columns)
    shared = share_vocabularies(fields, columns)
    return Schema(shared, label, missing=missing, weight=weight, impressions=impressions)


def _without(cells: list[str], missing: Sequence[str]) -> list[str]:
    """Return cells with empty ones in place of those that are missing."""
    return ["" if cell in missing else cell for cell in cells] if missing else cells


def _leave_out_identifiers(fields: list[Field], columns: Mapping[str, Sequence[str] | ListColumn]) -> list[Field]:
    """Return the fields without those that identify rows, unless there are no others."""
    cells = {name: values for name, values in columns.items() if not isinstance(values, ListColumn)}
    left_out = [field for field in fields if field.name in cells and identifies_rows(field, cells[field.name])]
    if len(left_out) == len(fields):
        return fields
    for field in left_out:
        warn_left_out(field.name, len(cells[field.name]))
    return [field for field in fields if field not in left_out]


def _infer_field(name: str, values: Sequence[str] | ListColumn, min_count: int) -> Field:
    if isinstance(values, ListColumn):
        return values.field(name, min_count)
    present = [value for value in values if value]

    def mostly(pattern: re.Pattern[str]) -> bool:
        return 0 < sum(pattern.fullmatch(value) is not None for value in present) >= MOSTLY * len(present)

    if format := infer_time_format(name, present, identifier=IDENTIFIER.search(name) is not None):
        return Field(name, "timestamp", format=format, min_count=min_count)
    if mostly(NUMBER) and not mostly(CODE) and _are_quantities(name, present, min_count or FEWEST_OF_CATEGORY):
        return Field(name, "numeric", transform="quantiles", min_count=min_count)
    return infer_list(name, present, min_count) or Field(name, min_count=min_count)


def _are_quantities(name: str, numbers: Sequence[str], min_count: int) -> bool:
    """Return whether numbers measure something, instead of being identifiers or one of a few values."""
    if len(set(numbers)) <= FEW_VALUES or IDENTIFIER.search(name):
        return False
    values = np.array([float(number) for number in numbers if NUMBER.fullmatch(number)])
    integers = values[values == np.floor(values)]
    return len(integers) < MOSTLY * len(values) or are_quantities(integers, min_count)


def _sample_frame(frame: Any, name: str = "the DataFrame") -> dict[str, list[str] | ListColumn]:
    polars = require("polars", "train", "inferring a schema")
    with library_errors(f"infer: cannot read {name}"):
        if not hasattr(frame, "collect_batches"):
            check_distinct_columns(frame)
            frame = polars.DataFrame(frame).lazy()
        columns = frame.head(SAMPLE_ROWS).collect().get_columns()
    return {column.name: _cells(column, polars) for column in columns}


def _cells(column: Any, polars: Any) -> list[str] | ListColumn:
    """Return the lists of a polars column, or its cells as a text file would have them."""
    with library_errors(f"infer: cannot read column '{column.name}'"):
        if lists := list_column(column, polars):
            return lists
        if column.dtype == polars.Duration:  # which has no text
            column = column.to_physical()
        elif column.dtype.is_temporal() and column.dtype != polars.Time:
            format = DATE_FORMAT if column.dtype == polars.Date else DEFAULT_TIME_FORMAT
            column = column.cast(polars.Datetime).dt.strftime(format)
        cells = [value or "" for value in column.cast(polars.String).to_list()]
        return [cell.removesuffix(".0") for cell in cells] if column.dtype.is_float() else cells


def _sample_file(path: LogFile, label: str) -> dict[str, list[str] | ListColumn]:
    if file_kind(path) == "parquet":
        return _sample_frame(open_parquet(path).frame, str(path))
    line, header_bytes = first_line(path)
    if is_libffm(line):
        return {label: ["0"], **_libffm_fields(path)}
    names = max((split_line(line, separator) for separator in SEPARATORS), key=len)
    separator = next(separator for separator in SEPARATORS if split_line(line, separator) == names)
    find_columns(names, [label], f"infer: {path} line 1")
    check_distinct(names, f"{path} line 1")
    if len(names) < 2:
        raise Fm2Error(f"infer: {path} line 1 has only one column; a log needs a label and at least one field")
    text = read_start(path, header_bytes + START_BYTES)[header_bytes:].decode(errors="replace")
    complete_lines = text[: text.rfind("\n") + 1] or text
    rows = [split_line(line, separator) for line in complete_lines.splitlines()[:SAMPLE_ROWS] if line]
    return {name: [row[i] for row in rows if len(row) == len(names)] for i, name in enumerate(names)}


def _libffm_fields(path: LogFile) -> dict[str, list[str] | ListColumn]:
    """Return the fields of a libffm file. Read all of it, because a rare field may first appear late."""
    with open_stream(path) as (stream, _):
        fields = {field.decode(errors="replace"): lists for field, lists in libffm_lists(stream).items()}
    numbers = sorted((field for field in fields if field.isdigit()), key=lambda field: (len(field), field))
    return {number: fields[number] or [] for number in numbers}
