"""Warnings about multi-valued fields that were probably not meant like that."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from fm2.data.dataset import Dataset
from fm2.data.rows import Lists
from fm2.data.vocabulary import Vocabulary
from fm2.errors import printable, warn

BRACKETS = {"[": "]", "{": "}"}
BRACKETED = 0.95  # the share of a column's cells
BRACKETED_VALUES = 0.1  # the share of a field's values that begin with a bracket, and of those that end with one
CHECKED_VALUES = 1000
CHECKED_LISTS = 1 << 16  # at a time
SHOWN = 40  # characters of a cell


def find_bracketed(cells: Sequence[str]) -> str | None:
    """Return one of the cells if almost all are lists in brackets, such as JSON or the ``repr`` of a Python list.

    >>> find_bracketed(["['a', 'b']", "[]", "['c']"])
    "['a', 'b']"
    >>> find_bracketed(["[Official] Video, live", "[a, b]"]) is None
    True
    """
    bracketed = [cell for cell in cells if cell[:1] in BRACKETS and cell.endswith(BRACKETS[cell[0]])]
    if len(bracketed) < BRACKETED * max(len(cells), 1):
        return None
    return next((cell for cell in bracketed if "," in cell), None)


def warn_bracketed(name: str, cell: str) -> None:
    """Warn that a column of text has lists in brackets, which inference does not split."""
    problem = f"contains lists in brackets, {_shown(cell)}, which are not split"
    warn(f"infer: column '{name}' {problem}; {_fix(name, cell)}")


def warn_about_lists(dataset: Dataset, weights_required: bool = True) -> None:
    """Warn about lists of a new dataset that have brackets in their values, or no weights in a weighted field."""
    for index, field in enumerate(dataset.schema.fields):
        value = _bracketed_value(dataset.vocabularies[index]) if field.multivalued and not field.shares else None
        if value is not None:
            warn(
                f"prepare: field '{field.name}' has values with brackets, {_shown(value)}; {_fix(field.column, value)}"
            )
        weighted = field.weighted and not field.weight_column and weights_required
        if weighted and len(dataset.lists[index].ids) and not _have_weights(dataset.lists[index], field.pooling or ""):
            warn(
                f"prepare: field '{field.name}' is weighted, but the values of each row have equal weights; write "
                "value:weight, use lists of structs with a value and a weight, or remove weighted = true"
            )


def _have_weights(lists: Lists, pooling: str) -> bool:
    """Return whether any weight differs from that of equally weighted values."""
    if lists.weights is None:
        return False
    for begin in range(0, len(lists), CHECKED_LISTS):
        offsets = lists.offsets[begin : begin + CHECKED_LISTS + 1]
        sizes = np.diff(offsets)
        divisors = {"mean": sizes, "sqrt": np.sqrt(sizes), "sum": np.ones(len(sizes))}[pooling]
        equal = np.repeat(1 / np.maximum(divisors, 1), sizes).astype(np.float32)
        if not np.array_equal(lists.weights[offsets[0] : offsets[-1]], equal):
            return True
    return False


def _bracketed_value(vocabulary: Vocabulary) -> str | None:
    """Return a value if many values are parts of lists in brackets, which a separator has divided."""
    if vocabulary.hashed:
        return None
    values = [vocabulary.value(id) or "" for id in range(1, min(len(vocabulary), CHECKED_VALUES + 1))]
    needed = BRACKETED_VALUES * max(len(values), 1)
    first = [value for value in values if value[:1] in BRACKETS]
    last = [value for value in values if value[-1:] in BRACKETS.values()]
    return first[0] if min(len(first), len(last)) >= needed else None


def _shown(text: str) -> str:
    return f"such as {printable(text[:SHOWN])}{'...' if len(text) > SHOWN else ''}"


def _fix(column: str, cell: str) -> str:
    """Say how to convert a column of such cells."""
    if cell.startswith("{"):
        return "write them as a:0.5|b:2 and set weighted = true"
    decode = ".str.json_decode(pl.List(pl.String))"
    if "'" in cell and not _is_json(cell):
        decode = """.str.replace_all("'", '"')""" + decode
    elif '"' not in cell and not _is_json(cell):
        decode = '.str.strip_chars("[]").str.split(", ")'
    return f'convert them to lists, for example with Polars: pl.col("{column}"){decode}'


def _is_json(cell: str) -> bool:
    try:
        return isinstance(json.loads(cell), list)
    except ValueError:
        return False
