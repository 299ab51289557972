"""The table of a comparison on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fm2.artifacts.run_directory import RACE
from fm2.evaluation.metrics import metric_title
from fm2.studies.comparison.results import BEST_POSSIBLE, Comparison
from fm2.studies.statistics import Statistics

FORMS = "the best of several variants on the validation rows, as in fm2 train"
TIE = "* best, or no significant difference from the best"
# Why a run should have had more epochs, by the column of its row that says so.
TOO_SHORT = {
    "unfinished": "the validation score was still improving",
    "unsettled": "the target sparsity was not reached",
}


def lines(comparison: Comparison) -> list[str]:
    """Return the lines of the table: one per model, the best possible scores if known, then warnings and failures."""
    rows = comparison.summary()
    quality = 19 if any(row["deviation"] for row in rows) else 9
    name_width = max([len(row["model"]) for row in rows] + [len(BEST_POSSIBLE) if comparison.truth else 0, 5])
    gap = f" {'gap closed':>10}" if comparison.truth else ""
    sizes = f"{'parameters':>13} {'FLOPs':>11} {'cached':>9}"
    table = [
        f"{'model':<{name_width}} {sizes} {'AUC':>{quality}} {'log loss':>{quality}}{gap} {'epoch':>5} {'seconds':>7}"
    ]
    for row in rows:
        counts = {"parameters": 13, "flops": 11, "flops_cached": 9}
        sizes = " ".join(f"{optional(row[name], ','):>{width}}" for name, width in counts.items())
        scores = " ".join(f"{marked(row, name, comparison.statistics):>{quality}}" for name in ("auc", "log_loss"))
        gap = f" {optional(row['gap'], 'z.1%'):>10}" if comparison.truth else ""
        time = f"{optional(row['best_epoch'], '.1f'):>5} {optional(row['seconds'], '.0f'):>7}"
        table.append(f"{row['model']:<{name_width}} {sizes} {scores}{gap} {time}")
    if comparison.truth:
        best = " ".join(
            f"{comparison.truth[name]:.5f}".ljust(quality - 2).rjust(quality) for name in ("auc", "log_loss")
        )
        table.append(f"{BEST_POSSIBLE:<{name_width}} {'':>13} {'':>11} {'':>9} {best} {1:>10.1%}")
    table += differences(comparison.statistics, comparison.split)
    if raced := [run for run in (row["run"] for row in comparison.rows) if (comparison.path / run / RACE).is_file()]:
        table.append(f"{FORMS}: {', '.join(raced)}")
    for column, reason in TOO_SHORT.items():
        runs = [row["run"] for row in comparison.rows if row.get(column)]
        if runs:
            table.append(f"{reason} at the last epoch of {', '.join(runs)}; continue with --resume --epochs N")
    table += [f"{row['run']} failed: {row['error']}" for row in comparison.failed]
    return table


def marked(row: Mapping[str, Any], name: str, statistics: Statistics | None) -> str:
    """Format a score; a star marks the best model and those that do not differ significantly from it."""
    shown = score(row, name)
    if not shown or statistics is None or len(statistics.metrics[name].models) < 2:
        return shown
    return shown + ("*" if row["model"] in statistics.metrics[name].leaders else " ")


def differences(statistics: Statistics | None, split: str) -> list[str]:
    """Return the lines of a table of the differences of each model from the best one, with intervals."""
    if statistics is None or len(statistics.metrics["auc"].models) < 2:
        return []
    models = list(statistics.metrics["auc"].models)
    width, cell = max(map(len, models)), 31
    titles = [f"{metric_title(name)} − {metric.reference}" for name, metric in statistics.metrics.items()]
    table = ["", f"{'':<{width}} " + " ".join(f"{title:>{cell}} " for title in titles)]
    for model in models:
        cells = []
        for metric in statistics.metrics.values():
            shown = "best" if model == metric.reference else str(metric.difference(model, metric.reference))
            cells.append(f"{shown:>{cell}}{'*' if model in metric.leaders else ' '}")
        table.append(f"{model:<{width}} {' '.join(cells)}".rstrip())
    return [*table, TIE, statistics.caption(split)]


def caption(comparison: Comparison) -> str:
    """Return a line that explains the scores."""
    seeds = f"mean ± standard deviation of {len(comparison.seeds)} seeds, " if len(comparison.seeds) > 1 else ""
    return f"{seeds}{comparison.split} split of {comparison.data}; FLOPs as counted in the paper"


def score(row: Mapping[str, Any], name: str) -> str:
    """Format a score of a summary, with its standard deviation if there are several seeds."""
    deviation = f" ± {row['deviation'][name]:.5f}" if name in row["deviation"] else ""
    return optional(row[name], ".5f") + deviation


def optional(value: float | None, specification: str) -> str:
    """Format a number; None is an empty string."""
    return "" if value is None else format(value, specification)
