"""Which differences of a reproduction are significant: between models, and between FmFMs of table 8, over all seeds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.compression.retraining import measured_split
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.evaluate import targets
from fm2.evaluation.metrics import metric_title
from fm2.studies.comparison.printing import TIE
from fm2.studies.comparison.results import Comparison
from fm2.studies.reproduction.published import title_of
from fm2.studies.reproduction.tables import Table
from fm2.studies.statistics import Statistics, measure_statistics
from fm2.training.run import Run

FULL = "full"


def model_differences(comparison: Comparison, number: int) -> list[Table]:
    """Return a table of how much each model in table 6 or 7 differs from the best one; none for one model."""
    if comparison.statistics is None:
        return []
    title = f"Table {number}: differences from the best model"
    return _differences(title, comparison.statistics, comparison.split, title_of, TIE)


def shrunk_differences(statistics: Statistics | None, split: str) -> list[Table]:
    """Return a table of how much the smaller models of table 8 differ from the full one."""
    if statistics is None:
        return []
    title = "Table 8: differences from the full model"
    return _differences(title, statistics, split, str, "* no significant difference from the full model")


def _differences(
    title: str, statistics: Statistics, split: str, name_of: Callable[[str], str], tie: str
) -> list[Table]:
    metrics = statistics.metrics
    models = list(metrics["auc"].models)
    rows = []
    for model in models:
        cells = []
        for metric in metrics.values():
            if model == metric.reference:
                cells.append("best*" if tie == TIE else "")
            else:
                cells.append(f"{metric.difference(model, metric.reference)}{'*' if model in metric.tied else ''}")
        rows.append([name_of(model), *cells])
    header = ["", *(f"{metric_title(name)} − {name_of(each.reference)}" for name, each in metrics.items())]
    return [Table(title, header, rows, [f"\\{tie}.", f"{statistics.caption(split)}."])] if len(models) > 1 else []


def variance_title(variance: float | None) -> str:
    """Return the name of a row of table 8."""
    return FULL if variance is None else f"{variance:.0%}"


def combine_seeds(tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return table 8 with the means over seeds; ``tables`` has the rows of each seed.

    ``deviation`` has the standard deviations, if there are several seeds, and ``runs`` all runs of a row.
    """
    combined = []
    for rows in zip(*tables, strict=True):
        values = {name: [row[name] for row in rows] for name in ("dimension", "flops", "auc", "log_loss")}
        means = {name: fmean(of_seeds) for name, of_seeds in values.items()}
        deviation = {name: stdev(values[name]) for name in ("auc", "log_loss")} if len(rows) > 1 else {}
        runs = [str(row["run"]) for row in rows]
        combined.append({**rows[0], **means, "flops": round(means["flops"]), "deviation": deviation, "runs": runs})
    return combined


def measure_shrunk(rows: Sequence[Mapping[str, Any]], dataset: Dataset, threads: int = 0) -> Statistics | None:
    """Compare the smaller models of table 8 with the full one on the same rows. None if there are too few clicks."""
    split = measured_split(dataset)
    encoded, (labels, weights) = dataset.split(split).encoded, targets(dataset, split)
    runs = {variance_title(row["variance"]): row["runs"] for row in rows}

    @functools.cache  # for both metrics
    def predict(path: str) -> NDArray[np.float32]:
        return Run.open(path, threads).probabilities(encoded)

    try:
        return measure_statistics(labels, weights, runs, predict, reference=FULL)
    except Fm2Error:  # the table remains
        return None
