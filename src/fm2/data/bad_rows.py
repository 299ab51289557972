"""Bad rows: why a row is bad, and the file that keeps skipped rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import IO, Literal

from fm2.errors import Fm2Error, printable
from fm2.schema import Schema

Policy = Literal["stop", "skip"]

BAD_ROWS = "bad_rows.tsv"


def explain_fault(schema: Schema, columns: int, field: int, fault: str, text: bytes) -> str:
    """Explain why a row is bad, with the field and its value."""
    value = printable(text.decode(errors="backslashreplace"))
    name = f"field '{schema.names[field]}'" if field >= 0 else "the time column"
    timestamps = [field for field in schema.fields[max(field, 0) :] if field.kind == "timestamp"]
    time_format = timestamps[0].format if timestamps else ""
    return {
        "columns": f"expected {columns} columns, got {value}",
        "label": f"label '{schema.label}' is '{value}', not 0 or 1",
        "number": f"{name} is '{value}', not a number",
        "time": f"{name} is '{value}', not a time in the format {time_format}",
        "encoding": f"{name} is '{value}', not UTF-8 text",
        "quote": f"unbalanced quotes: {value}",
        "item": f"'{value}' is not field:feature:value with a field of the schema",
        "value": f"'{value}' has a value other than 1; weighted features are not supported",
        "repeated": f"'{value}' repeats a field; fields with several features are not supported",
    }[fault]


class BadRows:
    """Raise an error at the first bad row, or write bad rows to a file with the reason, depending on the policy."""

    def __init__(self, directory: Path, policy: Policy) -> None:
        self._path = directory / BAD_ROWS
        self._policy = policy
        self.count = 0
        self.faults: Counter[str] = Counter()
        self.first = ""
        self._file: IO[bytes] | None = None

    def add(self, source: str, place: str, fault: str, reason: str, row: bytes) -> None:
        """Record a bad row, or raise an error."""
        if self._policy == "stop":
            raise Fm2Error(f"prepare: {source} {place}: {reason}; --bad-rows skip ignores such rows")
        if self._file is None:
            self._file = self._path.open("wb")
            self._file.write(b"source\tplace\treason\trow\n")
            self.first = f"{source} {place}: {reason}"
        cells = [printable(source).encode(), place.encode(), reason.encode(), row.replace(b"\t", b"\\t")]
        self._file.write(b"\t".join(cells).replace(b"\n", b"\\n") + b"\n")
        self.count += 1
        self.faults[fault] += 1

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
