"""Recognize multi-valued fields in the first rows of a log."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fm2.data.list_warnings import find_bracketed, warn_bracketed
from fm2.field import DEFAULT_MIN_COUNT, Field

SEPARATORS = "|;, "
BAR_SHARE = 0.2  # the share of cells with a bar, which is rare in other texts
OTHER_SHARE = 0.5  # the share of cells with another separator
SHRINKS_TO = 0.5  # there must be at most this many distinct values for each distinct cell, unless a bar separates them
OCCURRENCES = 3  # a value occurs this often on average
SAME_LENGTH = 0.95  # if more cells than this have the same number of parts, they are texts, times or pairs, not lists
MOSTLY = 0.95
IDENTIFIER = re.compile(r"\w*\d\w*")  # values separated by blanks; words would be free text
SHARED_VALUES = 20  # lists with fewer distinct values do not share the vocabulary of a column
IN_COLUMN = 0.8  # the share of their values that must be values of the column
IN_LISTS = 0.3  # the share of the column's distinct values that must be in lists
WEIGHTED = re.compile(r".+:(\d*\.)?\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class ListColumn:
    """A column of lists, whose values may have weights. ``values`` are those of all lists, as far as they are known."""

    weighted: bool
    values: Sequence[str] = ()

    def field(self, name: str, min_count: int) -> Field:
        """Return the multi-valued field of this column."""
        return Field(name, multivalued=True, weighted=self.weighted, min_count=min_count)


def list_column(column: Any, polars: Any) -> ListColumn | None:
    """Return how the lists of a polars column look, or None if its type is not a list."""
    if not isinstance(column.dtype, polars.List | polars.Array):
        return None
    weighted = isinstance(column.dtype.inner, polars.Struct)
    if weighted or column.dtype.inner.is_nested():
        return ListColumn(weighted)
    return ListColumn(weighted, column.explode().drop_nulls().cast(polars.String).to_list())


def infer_list(name: str, cells: Sequence[str], min_count: int) -> Field | None:
    """Return a multi-valued field if the cells look like values with a separator between them.

    >>> infer_list("genres", ["Comedy|Crime", "Crime", "Comedy|Crime|Drama", "Drama"] * 9, 4).separator
    '|'
    >>> infer_list("title", ["The Usual Suspects", "Se7en", "Toy Story"] * 9, 4) is None
    True
    """
    bracketed = find_bracketed(cells)
    if bracketed is not None:
        warn_bracketed(name, bracketed)
        return None
    for separator in SEPARATORS:
        share = sum(separator in cell for cell in cells) / max(len(cells), 1)
        if share >= (BAR_SHARE if separator == "|" else OTHER_SHARE):
            lists = [cell.split(separator) for cell in cells]
            weighted = _are_weighted(value for values in lists for value in values)
            if weighted:
                lists = [[value.rpartition(":")[0] for value in values] for values in lists]
            if _are_lists(cells, lists, separator):
                return Field(name, multivalued=True, separator=separator, weighted=weighted, min_count=min_count)
    return None


def _are_lists(cells: Sequence[str], lists: Sequence[Sequence[str]], separator: str) -> bool:
    lengths = Counter(len(values) for values in lists)
    values = Counter(value for values in lists for value in values)
    if max(lengths.values()) > SAME_LENGTH * len(lists) or values.total() < OCCURRENCES * len(values):
        return False
    if separator == " " and sum(IDENTIFIER.fullmatch(value) is not None for value in values) < MOSTLY * len(values):
        return False
    return separator == "|" or len(values) <= SHRINKS_TO * len(set(cells))


def _are_weighted(values: Iterable[str]) -> bool:
    matches = [WEIGHTED.fullmatch(value) is not None and "." in value.rpartition(":")[2] for value in values]
    return sum(matches) >= MOSTLY * len(matches)


def share_vocabularies(fields: Sequence[Field], columns: Mapping[str, Sequence[str] | ListColumn]) -> list[Field]:
    """Let lists of values of another column, such as a history of items, share the vocabulary of its field.

    >>> fields = [Field("item"), Field("history", multivalued=True)]
    >>> columns = {"item": [f"i{n}" for n in range(30)], "history": [f"i{n}|i{n + 1}" for n in range(29)]}
    >>> share_vocabularies(fields, columns)[1].shares
    'item'
    """
    owners = {}
    for field in fields:
        values = columns[field.name]
        if field.kind == "categorical" and not field.multivalued and not isinstance(values, ListColumn):
            owners[field.name] = set(values) - {""}
    return [_with_shares(field, columns[field.column], owners) if field.multivalued else field for field in fields]


def _with_shares(field: Field, cells: Sequence[str] | ListColumn, owners: Mapping[str, set[str]]) -> Field:
    values = Counter(cells.values if isinstance(cells, ListColumn) else _split(field, cells))
    if len(values) < SHARED_VALUES:
        return field
    matches = [
        name
        for name, known in owners.items()
        if sum(count for value, count in values.items() if value in known) >= IN_COLUMN * values.total()
        and len(known & values.keys()) >= IN_LISTS * len(known)
    ]
    if len(matches) != 1:
        return field
    return dataclasses.replace(field, shares=matches[0], min_count=DEFAULT_MIN_COUNT)  # the shared field has its own


def _split(field: Field, cells: Iterable[str]) -> Iterable[str]:
    values = (value for cell in cells if cell for value in cell.split(field.separator))
    return (value.rpartition(":")[0] for value in values) if field.weighted else values


def libffm_lists(lines: Iterable[bytes]) -> dict[bytes, ListColumn | None]:
    """Return the fields of libffm lines; those that repeat or have values other than 1 are lists with weights."""
    lists: dict[bytes, ListColumn | None] = {}
    for line in lines:
        seen: set[bytes] = set()
        for item in line.split()[1:]:
            field, _, rest = item.partition(b":")
            if field in seen or not (rest.endswith(b":1") or _is_one(rest)):
                lists[field] = ListColumn(weighted=True)
            seen.add(field)
            lists.setdefault(field, None)
    return lists


def _is_one(rest: bytes) -> bool:
    try:
        return float(rest.rpartition(b":")[2]) == 1
    except ValueError:
        return True  # a bad row, not a weight
