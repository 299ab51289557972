"""The results of a reproduction so far, and the files that store them: reproduction.md, .json and .html."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.files import check_output, write_errors, write_text
from fm2.studies.reproduction.contradictions import contradictions
from fm2.studies.reproduction.protocol import TITLES, Protocol, differences
from fm2.studies.reproduction.published import SAMPLES
from fm2.studies.reproduction.tables import Table

FORMAT, VERSION = "fm2 reproduction", 1
RECORD, PAGE, REPORT = "reproduction.json", "reproduction.md", "reproduction.html"


@dataclass
class Reproduction:
    """The paper's tables for one log: the finished ``tables``, and the rows of the runs that ``failed``.

    ``changed`` has the settings that differ from the protocol, by model, and those of all models under "". ``settings``
    has all settings of each run. ``notes`` say what to know before comparing figures.
    """

    path: Path
    log: str
    source: str
    protocol: Protocol
    models: list[str]
    numbers: list[int]
    rows: int = 0
    tables: list[Table] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The title of the page."""
        changed = " and changed settings" if self.changed else ""
        return f"The paper's tables on {self.log.capitalize()}, with {TITLES[self.protocol]}{changed}"

    @property
    def summary(self) -> list[str]:
        """Sentences on the size of the log, the changed settings, and trainings that ended too early."""
        total = SAMPLES[self.log].rows
        size = f"{self.rows:,} of the paper's {total:,} rows ({self.rows / total:.1%})"
        if self.rows <= 0.99 * total:
            size += "; figures from a sample are not comparable with the paper's"
        changes = [f"Changed settings{_of(model)}: {_listed(values)}." for model, values in self.changed.items()]
        return [f"{size}.", *changes, *self.notes]

    @property
    def model_settings(self) -> dict[str, dict[str, Any]]:
        """The settings of the first run of each model."""
        found: dict[str, dict[str, Any]] = {}
        for values in self.settings.values():
            found.setdefault(values["model"], values)
        return found

    def lines(self) -> list[str]:
        """Return the lines of the page: the size of the log, the tables, the settings and the contradictions."""
        lines = [f"# {self.title}", "", *(part for text in self.summary for part in (text, ""))]
        lines += [line for table in self.tables for line in table.lines()]
        if self.settings:
            lines += settings_table(self.model_settings).lines()
        for title, texts in self.lists().items():
            lines += [f"## {title}", "", *(f"- {text}" for text in texts), ""]
        return lines[:-1]

    def lists(self) -> dict[str, list[str]]:
        """Return the lists that end the page, by title."""
        return {
            "Contradictions in the paper": contradictions(self.log),
            "Differences from the authors' code": differences(self.protocol),
        }

    def record(self) -> dict[str, Any]:
        """Return the content of reproduction.json."""
        names = ("log", "source", "protocol", "models", "numbers", "rows", "changed", "settings", "notes")
        values = {name: getattr(self, name) for name in names}
        tables = [{"title": t.title, "header": list(t.header), "rows": t.rows, "notes": t.notes} for t in self.tables]
        return {"format": FORMAT, "version": VERSION, **values, "tables": tables, "lists": self.lists()}

    def save(self) -> None:
        """Write the page, and the record that resuming needs."""
        with write_errors(self.path, "reproduce"):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / RECORD, json.dumps(self.record(), indent=1) + "\n")
            write_text(self.path / PAGE, "\n".join(self.lines()) + "\n")


def settings_table(settings: Mapping[str, Mapping[str, Any]]) -> Table:
    """Make a table of all settings that were used, one column per model."""
    names = dict.fromkeys(name for values in settings.values() for name in values if name != "model")
    rows = [[name, *(_text(values.get(name, "")) for values in settings.values())] for name in names]
    return Table("Settings", ["", *settings], rows)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_text(value)}" for name, value in values.items())


def _of(model: str) -> str:
    return f" of {model}" if model else ""


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
