"""The schema of a table: as the user describes it, or from the column types."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import polars

from fm2.data.schema_inference import FEW_VALUES, IDENTIFIER
from fm2.errors import suggest
from fm2.estimators.inputs import InputError
from fm2.field import DATE_FORMAT, DEFAULT_MIN_COUNT, Field, Kind
from fm2.schema import Schema

Fields = Schema | Sequence[Field] | Mapping[str, Kind | Field] | None

FEW_ROWS = 1000  # below which no value is too rare


def column_names(fields: Fields) -> list[str] | None:
    """Return the columns that the fields read, in order, for tables without column names."""
    if isinstance(fields, Schema):
        if fields.weight or fields.impressions:
            raise InputError("fields: the schema has a weight or impressions; pass sample_weight to fit instead")
        return [name for name in fields.columns or fields.source_columns if name != fields.label]
    if fields is None or isinstance(fields, Mapping):
        return None
    return list(dict.fromkeys(name for field in fields for name in (field.column, field.weight_column) if name))


def make_schema(table: polars.DataFrame, fields: Fields, min_count: int | None) -> Schema:
    """Return the user's schema, or one from the column types, which a mapping may override."""
    if isinstance(fields, Schema):
        return fields
    label = "label"
    while label in table.columns:
        label += "_"
    if fields is not None and not isinstance(fields, Mapping):
        return Schema(fields, label)
    described = dict(fields or {})
    derived = [field for field in described.values() if isinstance(field, Field) and field.is_derived]
    for name, described_field in described.items():
        if name not in table.columns and described_field not in derived:
            raise InputError(f"fields: X has no column '{name}'; {suggest(name, table.columns, described)}")
    least = min_count if min_count is not None else DEFAULT_MIN_COUNT if len(table) >= FEW_ROWS else 1
    weights = {field.weight_column for field in described.values() if isinstance(field, Field)}
    columns = [column for column in table.get_columns() if column.name in described or column.name not in weights]
    return Schema([*(_field(column, described.get(column.name), least) for column in columns), *derived], label)


def _field(column: polars.Series, described: Kind | Field | None, min_count: int) -> Field:
    if isinstance(described, Field):
        return dataclasses.replace(described, column=column.name)
    kind = described or _kind(column)
    container = column.dtype.base_type().__name__  # older versions of polars have no Map
    if container in ("List", "Array", "Map"):
        weighted = container == "Map" or isinstance(getattr(column.dtype, "inner", None), polars.Struct)
        return Field(column.name, kind, min_count=min_count, multivalued=True, weighted=weighted)
    if kind != "numeric":
        format = DATE_FORMAT if kind == "timestamp" and column.dtype == polars.Date else None
        return Field(column.name, kind, min_count=min_count, format=format)
    return Field(column.name, kind, min_count=min_count, transform="quantiles")


def _kind(column: polars.Series) -> Kind:
    """Infer a column's kind from its type; integers are categorical if there are few of them or the name says id."""
    if column.dtype in (polars.Date, polars.Datetime):
        return "timestamp"
    if column.dtype.is_integer():
        few = column.n_unique() <= min(FEW_VALUES, len(column) // 5)
        return "categorical" if few or IDENTIFIER.search(column.name) else "numeric"
    return "numeric" if column.dtype.is_numeric() else "categorical"
