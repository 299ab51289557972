"""What a reproduction has done so far, and the files that hold it: reproduction.md and reproduction.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.files import atomic_file, check_output, write_errors
from fm2.studies.reproduction.discrepancies import contradictions
from fm2.studies.reproduction.protocol import Protocol
from fm2.studies.reproduction.published import SAMPLES
from fm2.studies.reproduction.tables import Table

FORMAT, VERSION = "fm2 reproduction", 1
RECORD, PAGE = "reproduction.json", "reproduction.md"


@dataclass
class Reproduction:
    """The paper's tables for one log. ``tables`` are those that are done, ``failed`` the rows of models that failed."""

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
        """Give the page: what the rows are, the tables, and where the paper contradicts itself."""
        whole, used = SAMPLES[self.log].rows, "the paper's optimizer" if self.protocol == "paper" else "fm2's defaults"
        share = f"{self.rows:,} rows of the {whole:,} that the paper has ({self.rows / whole:.1%})"
        part = "" if self.rows > 0.99 * whole else ": a part, whose figures are not to be compared with the whole's"
        lines = [f"# The paper's tables on {self.log.capitalize()}, with {used}", "", f"{share}{part}.", ""]
        lines += [line for table in self.tables for line in table.lines()]
        lines += ["## Where the paper contradicts itself", ""]
        return [*lines, *(f"- {text}" for text in contradictions(self.log))]

    def record(self) -> dict[str, Any]:
        """Give what is done in plain values."""
        own = {name: getattr(self, name) for name in ("log", "source", "protocol", "models", "numbers", "rows")}
        tables = [{"title": t.title, "header": list(t.header), "rows": t.rows, "notes": t.notes} for t in self.tables]
        return {"format": FORMAT, "version": VERSION, **own, "tables": tables}

    def save(self) -> None:
        """Write the page, and the record by which it can be gone on with."""
        with write_errors(self.path, "reproduce"):
            self.path.mkdir(parents=True, exist_ok=True)
            for name, text in ((RECORD, json.dumps(self.record(), indent=1)), (PAGE, "\n".join(self.lines()))):
                with atomic_file(self.path / name) as partial:
                    partial.write_text(text + "\n", encoding="utf-8")


def record_of(out: Path, log: str, source: str | Path, protocol: str, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Give the record of what is there, if it is to be gone on with."""
    check_output("reproduce", out, "reproduction", RECORD, resume=resume, overwrite=overwrite)
    if not resume:
        return {}
    try:
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        told, was = (record["format"], record["version"]), (record["log"], record["source"], record["protocol"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as wrong:
        raise Fm2Error(f"reproduce: {out / RECORD} is damaged or was not written by fm2: {wrong}") from wrong
    now = (log, str(Path(source).resolve()), protocol)
    if told != (FORMAT, VERSION) or was != now:
        raise Fm2Error(f"reproduce: {out} is of {', '.join(map(str, was))}, not of {', '.join(now)}")
    return record
