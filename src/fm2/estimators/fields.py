"""What the columns of a table mean: as told, or by their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import polars

from fm2.data.schema_inference import FEW_VALUES, IDENTIFIER
from fm2.errors import suggest
from fm2.estimators.inputs import InputError
from fm2.schema import DEFAULT_BUCKETS, DEFAULT_MIN_COUNT, Field, Kind, Schema

Fields = Schema | Sequence[Field] | Mapping[str, Kind | Field] | None

FEW_ROWS = 1000  # so few that every value counts
BUCKET_ROWS = 20  # in a bucket between quantiles, at least


def column_names(fields: Fields) -> list[str] | None:
    """Give the columns that fields read, in order, for tables whose columns have no names."""
    if isinstance(fields, Schema):
        return [name for name in fields.columns or fields.source_columns if name != fields.label]
    if fields is None or isinstance(fields, Mapping):
        return None
    return list(dict.fromkeys(field.column for field in fields))


def make_schema(table: polars.DataFrame, fields: Fields, min_count: int | None) -> Schema:
    """Give the schema that is told, or one by the columns' types, but for those that a mapping tells.

    >>> table = polars.DataFrame({"site": ["a", "b"], "price": [0.5, 1.5], "time": ["2024-01-01 10:00:00"] * 2})
    >>> [(field.name, field.kind) for field in make_schema(table, {"time": "timestamp"}, None).fields]
    [('site', 'categorical'), ('price', 'numeric'), ('time_weekday', 'timestamp'), ('time_hour', 'timestamp')]
    """
    if isinstance(fields, Schema):
        return fields
    label = "label"
    while label in table.columns:
        label += "_"
    if fields is not None and not isinstance(fields, Mapping):
        return Schema(fields, label)
    told = dict(fields or {})
    for name in told:
        if name not in table.columns:
            raise InputError(f"fields: X has no column '{name}'; {suggest(name, table.columns)}")
    least = min_count if min_count is not None else DEFAULT_MIN_COUNT if len(table) >= FEW_ROWS else 1
    return Schema([_field(column, told.get(column.name), least) for column in table.get_columns()], label)


def _field(column: polars.Series, told: Kind | Field | None, min_count: int) -> Field:
    if isinstance(told, Field):
        return dataclasses.replace(told, column=column.name)
    kind = told or _kind(column)
    if kind != "numeric":
        return Field(column.name, kind, min_count=min_count)
    buckets = min(DEFAULT_BUCKETS, max(2, len(column) // BUCKET_ROWS))
    return Field(column.name, kind, min_count=min_count, transform="quantiles", buckets=buckets)


def _kind(column: polars.Series) -> Kind:
    """Tell by its type what a column is; whole numbers are categories where few or where their name says so."""
    if column.dtype in (polars.Date, polars.Datetime):
        return "timestamp"
    if column.dtype.is_integer():
        few = column.n_unique() <= min(FEW_VALUES, len(column) // 5)
        return "categorical" if few or IDENTIFIER.search(column.name) else "numeric"
    return "numeric" if column.dtype.is_numeric() else "categorical"
