"""The results of a reproduction so far, and the files that store them: reproduction.md and reproduction.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.files import check_output, write_errors, write_text
from fm2.studies.reproduction.protocol import Protocol
from fm2.studies.reproduction.published import SAMPLES, contradictions
from fm2.studies.reproduction.tables import Table

FORMAT, VERSION = "fm2 reproduction", 1
RECORD, PAGE = "reproduction.json", "reproduction.md"


@dataclass
class Reproduction:
    """The paper's tables for one log: the finished ``tables``, and the rows of the runs that ``failed``."""

    path: Path
    log: str
    source: str
    protocol: Protocol
    models: list[str]
    numbers: list[int]
    rows: int = 0
    tables: list[Table] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the lines of the page: the size of the log, the tables, and the paper's contradictions."""
        total, used = SAMPLES[self.log].rows, "the paper's optimizer" if self.protocol == "paper" else "fm2's defaults"
        size = f"{self.rows:,} of the paper's {total:,} rows ({self.rows / total:.1%})"
        if self.rows <= 0.99 * total:
            size += "; figures from a sample are not comparable with the paper's"
        lines = [f"# The paper's tables on {self.log.capitalize()}, with {used}", "", f"{size}.", ""]
        lines += [line for table in self.tables for line in table.lines()]
        lines += ["## Contradictions in the paper", ""]
        return [*lines, *(f"- {text}" for text in contradictions(self.log))]

    def record(self) -> dict[str, Any]:
        """Return the content of reproduction.json."""
        values = {name: getattr(self, name) for name in ("log", "source", "protocol", "models", "numbers", "rows")}
        tables = [{"title": t.title, "header": list(t.header), "rows": t.rows, "notes": t.notes} for t in self.tables]
        return {"format": FORMAT, "version": VERSION, **values, "tables": tables}

    def save(self) -> None:
        """Write the page, and the record that resuming needs."""
        with write_errors(self.path, "reproduce"):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / RECORD, json.dumps(self.record(), indent=1) + "\n")
            write_text(self.path / PAGE, "\n".join(self.lines()) + "\n")


def read_record(
    out: Path, log: str, source: str | Path, protocol: str, resume: bool, overwrite: bool
) -> dict[str, Any]:
    """Return the record of a reproduction that is resumed. Empty for a new one, or one that is replaced."""
    check_output("reproduce", out, "reproduction", RECORD, resume=resume, overwrite=overwrite)
    if not resume:
        return {}
    try:
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        version = record["format"], record["version"]
        before = record["log"], record["source"], record["protocol"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Fm2Error(f"reproduce: {out / RECORD} is damaged or was not written by fm2: {error}") from error
    now = (log, str(Path(source).resolve()), protocol)
    if version != (FORMAT, VERSION) or before != now:
        raise Fm2Error(f"reproduce: {out} is of {', '.join(map(str, before))}, not of {', '.join(now)}")
    return record
