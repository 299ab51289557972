"""The inputs of a report: one run, or a comparison, and optionally the table of a shrunk FmFM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from fm2.artifacts.run_directory import HISTORY, read_history
from fm2.compression.retraining import TABLE
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec, is_model
from fm2.studies.comparison.results import Comparison

COSTS_AND_METRICS = ("parameters", "flops", "flops_cached", "auc", "log_loss", "best_epoch", "seconds")


@dataclass(frozen=True)
class Entry:
    """A trained model and its metrics. If training failed, ``error`` has the reason and the other values are unset."""

    model: str
    seed: int
    path: Path
    parameters: int = 0
    flops: int = 0
    auc: float = 0.0
    log_loss: float = 0.0
    best_epoch: float | None = None
    seconds: float | None = None
    error: str | None = None
    flops_cached: float | None = None  # with cached products


@dataclass(frozen=True)
class Study:
    """Trained models that were evaluated on the same rows, and the best possible metrics if they are known."""

    path: Path
    split: str
    entries: Sequence[Entry]
    data: str | None = None
    truth: dict[str, float] | None = None
    fingerprint: str | None = None  # of the dataset

    @property
    def models(self) -> dict[str, list[Entry]]:
        """The entries that did not fail, by model. A model has one entry per seed."""
        models: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.error is None:
                models.setdefault(entry.model, []).append(entry)
        return models

    @property
    def best(self) -> Entry | None:
        """The first entry of the model with the highest mean AUC."""
        return max(self.models.values(), key=mean_auc, default=[None])[0]

    def first_with_full_matrices(self) -> Entry | None:
        """Return the first entry of a model with a full matrix for every pair of fields, if there is one."""
        return next((entries[0] for model, entries in self.models.items() if has_full_matrices(model)), None)


def has_full_matrices(model: str) -> bool:
    """Return whether a model, which may not be registered here, has a full matrix for every pair of fields."""
    return is_model(model) and get_spec(model).has_full_matrices


def mean_auc(entries: Sequence[Entry]) -> float:
    """Return the mean AUC of a model's seeds."""
    return fmean(entry.auc for entry in entries)


def read_comparison(path: Path) -> Study:
    """Read the results of ``fm2 compare``."""
    comparison = Comparison.open(path, "report")
    entries = []
    for row in comparison.rows:
        values = {"error": row["error"]} if row["error"] else {name: row[name] for name in COSTS_AND_METRICS}
        entries.append(Entry(row["model"], row["seed"], path / row["run"], **values))
    return Study(path, comparison.split, entries, comparison.data, comparison.truth, comparison.fingerprint)


def read_evaluations(run: Path) -> list[dict[str, Any]]:
    """Read the evaluations of a run; skip those with missing or invalid values."""
    rows = [row for row in read_history(run / HISTORY) if isinstance(row, dict)]
    return [row for row in rows if all(is_number(row.get(name)) for name in ("epoch", "auc", "log_loss"))]


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number.

    >>> [is_number(value) for value in (1, 0.5, None, "1", float("nan"))]
    [True, True, False, False, False]
    """
    return isinstance(value, int | float) and isfinite(value)


def read_shrunk(directory: Path) -> list[dict[str, Any]]:
    """Read the table that ``fm2 shrink`` writes for several shares of variance."""
    file = directory / TABLE
    try:
        return [_shrunk_row(row) for row in json.loads(file.read_text(encoding="utf-8"))]
    except OSError as error:
        raise Fm2Error(f"report: {file}: {error.strerror}; fm2 shrink --variance A,B,... writes this table") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Fm2Error(f"report: {file} is not a table of fm2 shrink --variance A,B,...: {error!r}") from error


def _shrunk_row(row: dict[str, Any]) -> dict[str, Any]:
    numbers = {name: float(row[name]) for name in ("dimension", "flops", "auc", "log_loss")}
    for name, number in numbers.items():
        if not 0 < number < inf:
            raise ValueError(f"{name} must be positive, got {number}")
    variance = None if row["variance"] is None else float(row["variance"])
    return {**row, **numbers, "variance": variance}


def find_shrunk(path: Path, runs: Iterable[Path]) -> list[dict[str, Any]]:
    """Find the table of models shrunk from one of these runs, inside ``path`` or next to it. Empty if there is none."""
    known = {run.resolve() for run in runs}
    for file in sorted({*path.glob(TABLE), *path.glob(f"*/{TABLE}"), *path.resolve().parent.glob(f"*/{TABLE}")}):
        try:
            rows = read_shrunk(file.parent)
        except Fm2Error:
            continue  # the table of another command
        original = Path(str(rows[0].get("run"))) if rows else path
        bases = (Path(), *file.resolve().parents)  # the path may be relative to any of these
        if known & {(base / original).resolve() for base in bases}:
            return rows
    return []
