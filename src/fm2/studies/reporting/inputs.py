"""What a report is of: one run, or the models that ``fm2 compare`` trained alike; and the table of a shrunk FmFM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from fm2.compression.retraining import TABLE
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec, is_model
from fm2.studies.comparison.results import Comparison
from fm2.training.run import HISTORY, read_history


@dataclass(frozen=True)
class Entry:
    """A trained model and how good it is; if it failed, ``error`` tells why, and the figures are not there."""

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
    flops_cached: float | None = None  # with the transformed vectors at hand


@dataclass(frozen=True)
class Study:
    """Trained models that were measured on the same rows, with the best figures possible where they are known."""

    path: Path
    split: str
    entries: Sequence[Entry]
    data: str | None = None
    truth: dict[str, float] | None = None
    fingerprint: str | None = None  # of the data set

    @property
    def models(self) -> dict[str, list[Entry]]:
        """The entries that did not fail, by model: a model may have several seeds."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.error is None:
                found.setdefault(entry.model, []).append(entry)
        return found

    @property
    def best(self) -> Entry | None:
        """The first entry of the model whose mean AUC is the highest."""
        return max(self.models.values(), key=lambda some: fmean(entry.auc for entry in some), default=[None])[0]

    def first_with_full_matrices(self) -> Entry | None:
        """Return the first entry of a model with a full matrix for every pair of fields, if there is one."""
        return next((some[0] for model, some in self.models.items() if has_full_matrices(model)), None)


def has_full_matrices(model: str) -> bool:
    """Return whether a model, which may not be registered here, has a full matrix for every pair of fields."""
    return is_model(model) and get_spec(model).has_full_matrices


def read_comparison(path: Path) -> Study:
    """Read what ``fm2 compare`` left in a directory."""
    found = Comparison.open(path, "report")
    taken = ("parameters", "flops", "flops_cached", "auc", "log_loss", "best_epoch", "seconds")
    entries = [
        Entry(row["model"], row["seed"], path / row["run"], error=row["error"])
        if row["error"]
        else Entry(row["model"], row["seed"], path / row["run"], **{name: row[name] for name in taken})
        for row in found.rows
    ]
    return Study(path, found.split, entries, found.data, found.truth, found.fingerprint)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _positive(value: float) -> float:
    if not 0 < value < inf:
        raise ValueError(f"{value} is not above 0")
    return value


def read_learning(run: Path) -> list[dict[str, Any]]:
    """Read a run's evaluations, those whose figures are numbers."""
    kept = ("epoch", "auc", "log_loss")
    rows = [row for row in read_history(run / HISTORY) if isinstance(row, dict)]
    return [row for row in rows if all(is_number(row.get(name)) for name in kept)]


def is_number(value: Any) -> bool:
    """Tell whether something is a number that can be drawn.

    >>> [is_number(value) for value in (1, 0.5, None, "1", float("nan"))]
    [True, True, False, False, False]
    """
    return isinstance(value, int | float) and isfinite(value)


def read_shrunk(directory: Path) -> list[dict[str, Any]]:
    """Read the table of models that ``fm2 shrink`` left for several shares of variance."""
    file = directory / TABLE
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        kept = ("dimension", "flops", "auc", "log_loss")
        numbers = [{name: _positive(float(row[name])) for name in kept} for row in rows]
        return [{**row, **some, "variance": _number(row["variance"])} for row, some in zip(rows, numbers, strict=True)]
    except OSError as missing:
        raise Fm2Error(
            f"report: {file}: {missing.strerror}; fm2 shrink with several shares of variance makes one"
        ) from missing
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise Fm2Error(f"report: {file} is no table of fm2 shrink --variance A,B,...: {wrong!r}") from wrong


def find_shrunk(path: Path, runs: Iterable[Path]) -> list[dict[str, Any]]:
    """Find the table of models that were shrunk from one of these runs, in the directory or beside it; else none."""
    known = {run.resolve() for run in runs}
    for file in sorted({*path.glob(TABLE), *path.glob(f"*/{TABLE}"), *path.resolve().parent.glob(f"*/{TABLE}")}):
        try:
            rows = read_shrunk(file.parent)
        except Fm2Error:
            continue  # another command's table
        first = Path(str(rows[0].get("run"))) if rows else path
        bases = (Path(), *file.resolve().parents)  # a relative path was seen from here, or from somewhere above it
        if known & {(base / first).resolve() for base in bases}:
            return rows
    return []
