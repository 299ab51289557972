"""Rows that cannot be used: what is said of them, and where they are kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import IO, Literal

from fm2.errors import Fm2Error, printable
from fm2.schema import Schema

Policy = Literal["stop", "skip"]

FILE = "bad_rows.tsv"


def explain(schema: Schema, columns: int, field: int, fault: str, found: bytes) -> str:
    """Say what is wrong with a row, naming the field and what stood there."""
    value = printable(found.decode(errors="backslashreplace"))
    name = f"field '{schema.names[field]}'" if field >= 0 else "the time column"
    time = next((f for f in schema.fields[max(field, 0) :] if f.kind == "timestamp"), None)
    return {
        "columns": f"{value} columns, not {columns}",
        "label": f"label '{schema.label}' is '{value}', not 0 or 1",
        "number": f"{name} is '{value}', not a number",
        "time": f"{name} is '{value}', not a time of the format {time.format if time else ''}",
        "encoding": f"{name} is '{value}', not text in UTF-8",
        "quote": f"a quote is not closed, or goes on behind its end: {value}",
        "item": f"'{value}' is not field:feature:value with a field of the schema",
        "value": f"'{value}' has a value other than 1; fm2 takes one feature per field, without a weight",
        "repeated": f"'{value}' is the second feature of its field; fm2 takes one",
    }[fault]


class BadRows:
    """Stops at the first bad row, or puts all of them into a file with the reason, whichever was asked for."""

    def __init__(self, directory: Path, policy: Policy) -> None:
        self.path, self.policy = directory / FILE, policy
        self.count = 0
        self._file: IO[bytes] | None = None
        self.reasons: Counter[str] = Counter()

    def add(self, source: str, place: str, fault: str, reason: str, row: bytes) -> None:
        """Take note of a bad row, or stop."""
        if self.policy == "stop":
            raise Fm2Error(f"prepare: {source} {place}: {reason}; --bad-rows skip ignores such rows")
        if self._file is None:
            self._file = self.path.open("wb")
            self._file.write(b"source\tplace\treason\trow\n")
        line = (
            "\t".join([printable(source), place, reason]).encode()
            + b"\t"
            + row.replace(b"\t", b"\\t").replace(b"\n", b"\\n")
        )
        self._file.write(line + b"\n")
        self.count += 1
        self.reasons[fault] += 1

    def close(self) -> None:
        """Finish the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
