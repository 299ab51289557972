"""The results of a comparison, and the files that store them: compare.json, compare.csv and differences.csv."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2.files import write_errors, write_text
from fm2.models.specs.shallow import LR
from fm2.remote.paths import local_path
from fm2.studies.result_files import StudyResults, read_results, write_csv
from fm2.studies.statistics import PairDifference, Statistics

FORMAT, VERSION = "fm2 compare", 1
JSON, CSV, DIFFERENCES = "compare.json", "compare.csv", "differences.csv"
MEASURES = ("parameters", "flops", "flops_cached", "auc", "log_loss", "gap", "best_epoch", "seconds")
REQUIRED = ("parameters", "flops", "auc", "log_loss")
COLUMNS = ("model", "seed", "run", *MEASURES, "unfinished", "unsettled", "error")
INTERVALS = ("auc_low", "auc_high", "log_loss_low", "log_loss_high")  # of a run, in the CSV file
BEST_POSSIBLE = "best possible"


@dataclass
class Comparison(StudyResults):
    """The results of a comparison. ``rows`` has a row for every model and seed that finished or failed.

    A row has the model's parameters and FLOPs (``flops_cached``: with cached products), its metrics on ``split``, and
    the name of its run in ``path``. If ``truth`` is known, ``gap`` is the share of the log loss between LR and the
    truth that the model closes. ``error`` is the reason why a run failed.

    ``statistics`` has the confidence intervals of all pairs of models, once the comparison is complete.
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
    statistics: Statistics | None = None

    @classmethod
    def open(cls, path: str | Path, operation: str = "compare") -> Comparison:
        """Read the comparison in a directory. Errors start with ``operation``."""

        path = local_path(path)

        def make(values: dict[str, Any]) -> Comparison:
            statistics = values.pop("statistics", None)
            comparison = cls(path, **values, statistics=statistics and Statistics.from_dict(statistics))
            comparison._check()
            return comparison

        return read_results(path / JSON, "a comparison", (FORMAT, VERSION), operation, make)

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

    def finished_runs(self) -> dict[str, list[str]]:
        """Return the names of the runs that did not fail, by model."""
        runs: dict[str, list[str]] = {}
        for row in self.rows:
            if not row["error"]:
                runs.setdefault(row["model"], []).append(row["run"])
        return runs

    def put(self, row: dict[str, Any]) -> None:
        """Add a row, or replace the row of the same run, and write the files."""
        others = [other for other in self.rows if other["run"] != row["run"]]
        self.spent.pop(row["run"], None)
        self.statistics = None
        order = {model: number for number, model in enumerate(self.models)}
        self.rows = sorted([*others, row], key=lambda row: (order.get(row["model"], len(order)), row["seed"]))
        self.save()

    def text(self) -> str:
        """Return the content of compare.json."""
        self._compute_gaps()
        return self.to_json(FORMAT, VERSION)

    def save(self) -> None:
        """Write all files."""
        with write_errors(self.path, "compare"):
            write_text(self.path / JSON, self.text())
            best = [{"model": BEST_POSSIBLE, **self.truth, "gap": 1.0}] if self.truth else []
            write_csv(self.path / CSV, (*COLUMNS, *INTERVALS), [*map(self._with_intervals, self.rows), *best])
            write_differences(self.path / DIFFERENCES, self.statistics)

    def _with_intervals(self, row: dict[str, Any]) -> dict[str, Any]:
        """Add the confidence intervals of a run's metrics to its row."""
        metrics = self.statistics.metrics.items() if self.statistics else ()
        bounds = [bound for _, metric in metrics for bound in metric.runs.get(row["run"], (None, None))]
        return row | dict(zip(INTERVALS, bounds, strict=False))

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


def write_differences(path: Path, statistics: Statistics | None) -> None:
    """Write the differences of all pairs to a CSV file; remove an outdated file if there are none yet."""
    if statistics is None:
        path.unlink(missing_ok=True)
        return
    columns = ["metric", *(each.name for each in dataclasses.fields(PairDifference)), "significant"]
    rows = [
        {"metric": name, **dataclasses.asdict(pair), "significant": pair.significant}
        for name, metric in statistics.metrics.items()
        for pair in metric.pairs
    ]
    write_csv(path, columns, rows)


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
    if row["run"] in ("", "..") or row["run"] != Path(row["run"]).name:  # a run outside of the comparison
        raise ValueError(f"expected the name of a run, got {row['run']!r}")
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
