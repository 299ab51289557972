"""Bad rows: why a row is bad, and the file that keeps skipped rows."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from fm2.data.missing_inference import missing_hint
from fm2.errors import Fm2Error, printable
from fm2.schema import Schema

Policy = Literal["stop", "skip"]

BAD_ROWS = "bad_rows.tsv"
MOST_VALUES = 65_536  # as in list_cell.h
LABELS = "write labels as 0 and 1, or set impressions= if they count clicks"
FEWEST_SKIPPED, MOST_SKIPPED = 100, 0.5  # from so many bad rows on, a larger share of them is a mistake of the schema
LARGEST_WEIGHT = 3.4028234e38  # weights are float32


def explain_fault(schema: Schema, columns: int, field: int, fault: str, text: bytes) -> str:
    """Explain why a row is bad, with the field and its value."""
    value = printable(text.decode(errors="backslashreplace"))
    weighted_value, _, weight = value.rpartition(":")
    name = f"field '{schema.names[field]}'" if field >= 0 else "the time column"
    timestamps = [field for field in schema.fields[max(field, 0) :] if field.kind == "timestamp"]
    time_format = timestamps[0].format if timestamps else ""
    return {
        "columns": f"expected {columns} columns, got {value}",
        "label": f"label '{schema.label}' is '{value}', not 0 or 1",
        "clicks": f"label '{schema.label}' is '{value}', not an integer from 0 to 4294967295",
        "impressions": f"impressions '{schema.impressions}' is '{value}', not an integer from 1 to 4294967295",
        "excess": f"label '{schema.label}' exceeds the impressions '{schema.impressions}': {value}",
        "weight": f"weight '{schema.weight}' is '{value}', not a finite number of at least 0",
        "number": f"{name} is '{value}', not a number{missing_hint(value)}",
        "time": f"{name} is '{value}', not a time in the format {time_format}",
        "encoding": f"{name} is '{value}', not UTF-8 text",
        "quote": f"unbalanced quotes, or a quoted cell over 1 MB: {value}",
        "item": f"'{value}' is not field:feature:value with a field of the schema",
        "value": f"'{value}' has a value other than 1; weights require a field with multivalued and weighted",
        "repeated": f"'{value}' repeats a field; only multi-valued fields may have several features",
        "value_weight": f"{name}: the weight of '{weighted_value}' is '{weight}', {_weight_problem(weight)}",
        "value_weights": f"{name} has {value}",
        "values": f"{name} has {value} values, but at most {MOST_VALUES} are allowed without max_values",
        "quoted_separator": f"{name} has a separator inside quotes, after '{value}'; no value may contain it",
    }[fault]


def _way_out(fault: str) -> str:
    """Return what to correct if most rows have this fault."""
    ways = {
        "label": LABELS,
        "number": 'make the field categorical in the schema (kind = "categorical")',
        "time": "correct the format of the time in the schema",
        "columns": "correct the columns of the schema, or split the log by its layouts",
    }
    return ways.get(fault, "correct the schema, or the log")


def _weight_problem(weight: str) -> str:
    try:
        number = float(weight)
    except ValueError:
        return "not a number"
    if number < 0:
        return "negative"
    return "infinite" if number > LARGEST_WEIGHT else "not a number"  # Python also reads blanks and underscores


@dataclass(frozen=True)
class SkippedRows:
    """Bad rows in a file: their number, how often each fault occurs, and the first row of each fault."""

    path: Path
    count: int
    faults: dict[str, int]
    first: dict[str, str]


class BadRows:
    """Raise an error at the first bad row, or write bad rows to a file with the reason, depending on the policy."""

    def __init__(self, directory: Path, policy: Policy) -> None:
        self._path = directory / BAD_ROWS
        self._policy = policy
        self.count = 0
        self.faults: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self._file: IO[bytes] | None = None

    def add(self, source: str, place: str, fault: str, reason: str, row: bytes) -> None:
        """Record a bad row, or raise an error."""
        if self._policy == "stop":
            hint = f"{LABELS}; " if fault == "label" else ""
            raise Fm2Error(f'prepare: {source} {place}: {reason}; {hint}bad_rows="skip" ignores such rows')
        file = self._file or self._start()
        self.first.setdefault(fault, f"{source} {place}: {reason}")
        cells = [printable(source).encode(), place.encode(), reason.encode(), row.replace(b"\t", b"\\t")]
        file.write(b"\t".join(cells).replace(b"\n", b"\\n") + b"\n")
        self.count += 1
        self.faults[fault] += 1

    def append(self, other: SkippedRows) -> None:
        """Append the bad rows that another process has recorded."""
        if not other.count:
            return
        written = self._file or self._start()
        for fault, row in other.first.items():
            self.first.setdefault(fault, row)
        with other.path.open("rb") as file:
            file.readline()  # the header
            shutil.copyfileobj(file, written)
        self.count += other.count
        self.faults.update(other.faults)

    def skipped(self) -> SkippedRows:
        """Return what was recorded, for :meth:`append`."""
        return SkippedRows(self._path, self.count, dict(self.faults), dict(self.first))

    def check_share(self, good: int) -> None:
        """Raise an error if no row is good, or if so many are bad that the schema is wrong, and not the rows."""
        if not good:
            raise Fm2Error(f"prepare: all {self.count} rows are bad; the first is {next(iter(self.first.values()))}")
        rows = self.count + good
        if self.count < FEWEST_SKIPPED or self.count <= MOST_SKIPPED * rows:
            return
        fault, number = self.faults.most_common(1)[0]
        share = f"{self.count / rows:.1%} of the rows are bad ({self.count:,} of {rows:,})"
        raise Fm2Error(
            f"prepare: {share}; the most frequent reason ({number:,} rows), first at {self.first[fault]}; "
            f'{_way_out(fault)}; bad_rows="skip" is for a minority of the rows'
        )

    def _start(self) -> IO[bytes]:
        self._file = self._path.open("wb")
        self._file.write(b"source\tplace\treason\trow\n")
        return self._file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
