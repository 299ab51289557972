"""A comparison as a table on the terminal."""

from __future__ import annotations

from typing import Any

from fm2.studies.comparison.results import BEST_POSSIBLE, Comparison

# What a row may tell of a training that had too few epochs.
UNDONE = {"unfinished": "still getting better", "unsettled": "not yet as sparse as asked to become"}


def lines(comparison: Comparison) -> list[str]:
    """Give the lines of the table: a model each, the best possible last if it is known, then what failed and why."""
    rows = comparison.summary()
    several = any(row["deviation"] for row in rows)
    quality = 18 if several else 8
    first = max([len(row["model"]) for row in rows] + [len(BEST_POSSIBLE) if comparison.truth else 0, 5])
    gap = f" {'of the gap':>10}" if comparison.truth else ""
    head = (
        f"{'model':<{first}} {'parameters':>13} {'FLOPs':>11} {'cached':>9} {'AUC':>{quality}} {'log loss':>{quality}}"
    )
    found = [f"{head}{gap} {'epoch':>5} {'seconds':>7}"]
    for row in rows:
        figures = f"{_count(row['parameters']):>13} {_count(row['flops']):>11} {_count(row['flops_cached']):>9}"
        measured = " ".join(f"{_measured(row, name):>{quality}}" for name in ("auc", "log_loss"))
        share = f" {_shown(row['gap'], 'z.1%'):>10}" if comparison.truth else ""
        rest = f"{_shown(row['best_epoch'], '.1f'):>5} {_shown(row['seconds'], '.0f'):>7}"
        found.append(f"{row['model']:<{first}} {figures} {measured}{share} {rest}")
    if comparison.truth:
        best = " ".join(
            f"{comparison.truth[name]:.5f}".ljust(quality - 1).rjust(quality) for name in ("auc", "log_loss")
        )
        found.append(f"{BEST_POSSIBLE:<{first}} {'':>13} {'':>11} {'':>9} {best} {1:>10.1%}")
    for state, reason in UNDONE.items():
        runs = [row["run"] for row in comparison.rows if row.get(state)]
        if runs:
            found.append(f"{reason} when the epochs were over: {', '.join(runs)}; --resume with more --epochs")
    found += [f"{row['run']} failed: {row['error']}" for row in comparison.failed]
    return found


def caption(comparison: Comparison) -> str:
    """Say what the figures are."""
    seeds = f"mean ± deviation of {len(comparison.seeds)} seeds, " if len(comparison.seeds) > 1 else ""
    return f"{seeds}on the {comparison.split} rows of {comparison.data}; FLOPs by the paper's counting"


def _measured(row: dict[str, Any], name: str) -> str:
    spread = f" ± {row['deviation'][name]:.5f}" if name in row["deviation"] else ""
    return _shown(row[name], ".5f") + spread


def _count(value: int | None) -> str:
    return _shown(value, ",")


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
