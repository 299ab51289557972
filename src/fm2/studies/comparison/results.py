"""The results of a comparison, and the files that store them: compare.json and compare.csv."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.files import atomic_file, write_errors, write_text
from fm2.models.specs.shallow import LR

FORMAT, VERSION = "fm2 compare", 1
JSON, CSV = "compare.json", "compare.csv"
MEASURES = ("parameters", "flops", "flops_cached", "auc", "log_loss", "gap", "best_epoch", "seconds")
REQUIRED = ("parameters", "flops", "auc", "log_loss")
COLUMNS = ("model", "seed", "run", *MEASURES, "unfinished", "unsettled", "error")
BEST_POSSIBLE = "best possible"


@dataclass
class Comparison:
    """The results of a comparison. ``rows`` has a row for every model and seed that finished or failed.

    A row has the model's parameters and FLOPs (``flops_cached``: with cached products), its metrics on ``split``, and
    the name of its run in ``path``. If ``truth`` is known, ``gap`` is the share of the log loss between LR and the
    truth that the model closes. ``error`` is the reason why a run failed.
    """

    path: Path
    data: str
    fingerprint: str
    split: str
    models: list[str]
    seeds: list[int]
    settings: dict[str, Any] = field(default_factory=dict)
    model_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    truth: dict[str, float] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)  # seconds of interrupted trainings

    @classmethod
    def open(cls, path: str | Path, operation: str = "compare") -> Comparison:
        """Read the comparison in a directory. Errors start with ``operation``."""
        file = Path(path) / JSON
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            version = values.pop("format"), values.pop("version")
            if version != (FORMAT, VERSION):
                raise Fm2Error(f"{operation}: {file}: expected format {(FORMAT, VERSION)}, got {version}")
            comparison = cls(Path(path), **values)
            comparison._check()
            return comparison
        except FileNotFoundError as error:
            raise Fm2Error(f"{operation}: {path} is not a comparison (it has no {JSON})") from error
        except OSError as error:
            raise Fm2Error(f"{operation}: {file}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Fm2Error(f"{operation}: {file} is damaged or not a comparison: {error!r}") from error

    def _check(self) -> None:
        """Raise a TypeError, ValueError or KeyError if a value is not of the kind that ``save`` writes."""
        _check_texts(self.data, self.fingerprint, self.split, *self.models)
        _check_numbers(*self.seeds, *self.spent.values())
        if self.truth is not None:
            _check_numbers(self.truth["auc"], self.truth["log_loss"])
        for table in (self.settings, *self.model_settings.values()):
            if not isinstance(table, dict):
                raise TypeError(f"expected a table of settings, got {table!r}")
        for row in self.rows:
            _check_row(row)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of runs that failed."""
        return [row for row in self.rows if row["error"]]

    def row(self, run: str) -> dict[str, Any] | None:
        """Return the row of a run, if there is one."""
        return next((row for row in self.rows if row["run"] == run), None)

    def put(self, row: dict[str, Any]) -> None:
        """Add a row, or replace the row of the same run, and write the files."""
        others = [other for other in self.rows if other["run"] != row["run"]]
        self.spent.pop(row["run"], None)
        order = {model: number for number, model in enumerate(self.models)}
        self.rows = sorted([*others, row], key=lambda row: (order.get(row["model"], len(order)), row["seed"]))
        self.save()

    def text(self) -> str:
        """Return the content of compare.json."""
        self._compute_gaps()
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "path"}
        return json.dumps({"format": FORMAT, "version": VERSION, **values}, indent=1, ensure_ascii=False) + "\n"

    def save(self) -> None:
        """Write both files."""
        with write_errors(self.path, "compare"):
            write_text(self.path / JSON, self.text())
            with atomic_file(self.path / CSV) as partial, partial.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(self.rows)
                if self.truth:
                    writer.writerow({"model": BEST_POSSIBLE, **self.truth, "gap": 1.0})

    def _compute_gaps(self) -> None:
        """Set each row's share of the log loss between LR and the truth; None if either is unknown."""
        linear = [row["log_loss"] for row in self.rows if row["model"] == LR.name and not row["error"]]
        baseline = statistics.fmean(linear) if linear else 0.0
        gap = baseline - self.truth["log_loss"] if self.truth and linear else 0.0
        for row in self.rows:
            row["gap"] = (baseline - row["log_loss"]) / gap if gap > 0 and not row["error"] else None

    def summary(self) -> list[dict[str, Any]]:
        """Return one entry per model: means over its seeds, and their standard deviations in ``deviation``.

        ``seeds`` is the number of seeds that did not fail; if it is 0, all measures are None.
        """
        names = dict.fromkeys(row["model"] for row in self.rows)
        return [_summarize(name, [row for row in self.rows if row["model"] == name]) for name in names]


def _summarize(model: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    finished = [row for row in rows if not row["error"]]
    summary: dict[str, Any] = {"model": model, "seeds": len(finished)}
    deviation: dict[str, float] = {}
    for name in MEASURES:
        values = [row[name] for row in finished if row[name] is not None]
        mean = statistics.fmean(values) if values else None
        if mean is not None and all(isinstance(value, int) for value in values):
            summary[name] = round(mean)
            continue
        summary[name] = mean
        if len(values) > 1:
            deviation[name] = statistics.stdev(values)
    return {**summary, "deviation": deviation}


def _check_row(row: dict[str, Any]) -> None:
    """Check one row. A run that failed needs no measures."""
    _check_texts(row["model"], row["run"], "" if row["error"] is None else row["error"])
    required = () if row["error"] else REQUIRED
    _check_numbers(row["seed"], *(row[name] for name in MEASURES if row[name] is not None or name in required))
    for name in ("flops", "flops_cached"):
        if row[name] is not None and row[name] < 1:
            raise ValueError(f"{name} must be at least 1, got {row[name]}")


def _check_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"expected a string, got {value!r}")


def _check_numbers(*values: Any) -> None:
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"expected a finite number, got {value!r}")
