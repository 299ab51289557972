"""The inputs of a report: one run, or a comparison, and optionally the table of a shrunk FmFM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import HISTORY, read_history_lines
from fm2.compression.retraining import TABLE
from fm2.errors import Fm2Error, cannot_read
from fm2.models.registry import get_spec, is_model
from fm2.studies.ablation.results import JSON as ABLATION
from fm2.studies.ablation.results import Ablation
from fm2.studies.comparison.results import Comparison

Row = Mapping[str, Any]  # of a comparison


def finished(comparison: Comparison) -> dict[str, list[Row]]:
    """Return the rows that did not fail, by model. A model has one row per seed."""
    models: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if not row["error"]:
            models.setdefault(row["model"], []).append(row)
    return models


def ranked(comparison: Comparison) -> list[Row]:
    """Return the summary of every model that has a finished run, highest mean AUC first."""
    return sorted((entry for entry in comparison.summary() if entry["seeds"]), key=lambda entry: -entry["auc"])


def has_full_matrices(model: str) -> bool:
    """Return whether a model, which may not be registered here, has a full matrix for every pair of fields."""
    return is_model(model) and get_spec(model).has_full_matrices


def first_with_full_matrices(comparison: Comparison) -> Row | None:
    """Return the first row of a model with a full matrix for every pair of fields, if there is one."""
    return next((rows[0] for model, rows in finished(comparison).items() if has_full_matrices(model)), None)


def read_evaluations(run: Path) -> list[dict[str, Any]]:
    """Read the evaluations of a run; skip those with missing or invalid values."""
    rows = [row for row in read_history_lines(run / HISTORY) if isinstance(row, dict)]
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
        raise cannot_read("report", file, error, "fm2 shrink --variance A,B,... writes this table") from error
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


def find_ablation(path: Path, runs: Iterable[Path]) -> Ablation | None:
    """Find an ablation of one of these runs, inside ``path`` or next to it."""
    known = {str(run.resolve()) for run in runs}
    for file in sorted({*path.glob(f"*/{ABLATION}"), *path.resolve().parent.glob(f"*/{ABLATION}")}):
        try:
            ablation = Ablation.open(file.parent, "report")
        except Fm2Error:
            continue  # damaged, or of a newer version
        if ablation.run in known:
            return ablation
    return None
