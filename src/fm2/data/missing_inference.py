"""Recognize texts that stand for a missing number."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from fm2.data.time_inference import MOSTLY

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MARKERS = frozenset(("NA", "na", "N/A", "n/a", "NULL", "null", "None", "none", "NaN", "nan", "-", "?", "\\N"))
FEW_VALUES = 20  # as many numbers may be codes, of which NA may be one: North America


def missing_markers(columns: Iterable[Sequence[str]]) -> list[str]:
    """Return the texts such as NA that columns of numbers have in place of some numbers.

    >>> numbers = [str(number) for number in range(100)]
    >>> missing_markers([[*numbers, "NA", "NA", ""], ["US", "NA", "-"], [*numbers, "-"]])
    ['-', 'NA']
    """
    found: set[str] = set()
    for values in columns:
        distinct = {*values} - {""}
        markers = distinct & MARKERS
        if not markers or len(distinct) - len(markers) <= FEW_VALUES:
            continue
        others = [value for value in values if value and value not in markers]
        if sum(NUMBER.fullmatch(value) is not None for value in others) >= MOSTLY * len(others):
            found |= markers
    return sorted(found)


def missing_hint(value: str) -> str:
    r"""Return what to do about a text in place of a number if it usually means a missing one.

    >>> print(missing_hint("NA"), missing_hint(r"\N"), missing_hint("abc"), sep="\n")
    ; missing = ["NA"] in the schema makes such values missing
    ; missing = ["\\N"] in the schema makes such values missing
    <BLANKLINE>
    """
    return f"; missing = [{json.dumps(value)}] in the schema makes such values missing" if value in MARKERS else ""
