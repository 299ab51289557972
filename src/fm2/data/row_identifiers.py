"""Columns with a different value in nearly every row. Nothing can be learned from their values."""

from __future__ import annotations

from collections.abc import Sequence

from fm2.errors import warn
from fm2.field import Field

FEWEST_ROWS = 100  # in fewer rows, all values of an ordinary column may differ by chance
NEARLY = 0.9  # the share of the rows that have a value, and of the rows that distinct values amount to


def identifies_rows(field: Field, cells: Sequence[str]) -> bool:
    """Return whether no value of an inferred field occurs twice in a sample: text, or integers without gaps.

    >>> identifies_rows(Field("request"), [f"{row * 7919:x}" for row in range(1000)])
    True
    >>> identifies_rows(Field("user"), [f"{row * row % 997:x}" for row in range(1000)])
    False
    >>> number = Field("row", "numeric")
    >>> [identifies_rows(number, [f"{row}{end}" for row in range(1000)]) for end in ("", ".5")]
    [True, False]
    """
    present = [cell for cell in cells if cell]
    if len(present) < max(FEWEST_ROWS, NEARLY * len(cells)) or len(set(present)) < len(present):
        return False
    if field.kind == "numeric":
        return all(map(str.isdecimal, present)) and max(map(int, present)) - min(map(int, present)) < len(present)
    return field.kind == "categorical" and not field.multivalued


def warn_left_out(name: str, rows: int) -> None:
    """Warn that inference leaves out a column."""
    warn(
        f"infer: left out column '{name}', because all of its first {rows:,} values differ, as identifiers of rows do; "
        "to use it anyway, add a field for it to the schema"
    )


def is_nearly_unique(field: Field, values: int, rows: int) -> bool:
    """Return whether the training rows of a categorical field have nearly as many different values as there are rows.

    >>> is_nearly_unique(Field("request"), 950, 1000), is_nearly_unique(Field("user"), 500, 1000)
    (True, False)
    """
    ordinary = field.kind == "categorical" and not (field.multivalued or field.hash_bits or field.shares)
    return ordinary and rows >= FEWEST_ROWS and values >= NEARLY * rows
