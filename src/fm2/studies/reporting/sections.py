"""The report's sections on models: summary, comparison, learning curves, calibration, shrinking, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fm2.evaluation.calibration import CalibrationError, error_lines
from fm2.evaluation.metrics import metric_title
from fm2.studies.comparison.printing import TIE, marked, optional
from fm2.studies.comparison.results import Comparison
from fm2.studies.reporting.charts import cached_dots, draw_calibration, draw_learning, draw_quality
from fm2.studies.reporting.inputs import Row, is_number, ranked
from fm2.studies.reporting.intervals import differences_from, draw_differences
from fm2.studies.reporting.page import Unbroken, cards, figure, folded, paragraph, section, table
from fm2.studies.statistics import Statistics

Histories = Mapping[str, Sequence[Mapping[str, Any]]]


def summary(comparison: Comparison, facts: Sequence[tuple[str, str]]) -> str:
    """Show the best model with its mean metrics and its costs."""
    best, split = ranked(comparison)[0], comparison.split
    tied = comparison.statistics.metrics["auc"].tied if comparison.statistics else []
    title = "best model" if len(comparison.rows) > 1 else "model"
    shown = [
        (f"{title}, tied with {len(tied)} more" if tied else title, Unbroken(best["model"])),
        (f"AUC ({split})", f"{best['auc']:.5f}"),
        (f"log loss ({split})", f"{best['log_loss']:.5f}"),
        ("FLOPs per prediction", f"{best['flops']:,}"),
        ("parameters", f"{best['parameters']:,}"),
        *facts,
    ]
    if comparison.truth:
        shown.append(("best possible AUC", f"{comparison.truth['auc']:.5f}"))
    return cards(shown)


def models(comparison: Comparison, shrunk: Sequence[Mapping[str, Any]]) -> str:
    """Show all models of a comparison in a table, and their AUC against their FLOPs."""
    failed = [paragraph(f"{row['model']}, seed {row['seed']}, failed: {row['error']}") for row in comparison.failed]
    entries = ranked(comparison)
    if not entries or len(comparison.rows) < 2:
        return section("Models", failed)
    headings = ("model", "AUC", "log loss", "parameters", "FLOPs", "FLOPs, cached", "best epoch", "seconds")
    formats = {"parameters": ",", "flops": ",", "flops_cached": ",.0f", "best_epoch": ".2f", "seconds": ",.1f"}
    rows = [
        (
            Unbroken(entry["model"]),
            *(marked(entry, name, comparison.statistics).strip() for name in ("auc", "log_loss")),
            *(optional(entry[name], specification) for name, specification in formats.items()),
        )
        for entry in entries
    ]
    seeds = max(entry["seeds"] for entry in entries)
    notes = [f"Mean ± standard deviation of {seeds} seeds."] if seeds > 1 else []
    notes += [f"{TIE}."] if comparison.statistics and len(entries) > 1 else []
    note = paragraph(" ".join(notes), "soft") if notes else ""
    leaders = comparison.statistics.metrics["auc"].leaders if comparison.statistics else [entries[0]["model"]]
    highlighted = [number for number, entry in enumerate(entries) if entry["model"] in leaders]
    caption = _quality_caption(entries, leaders)
    if cached_dots(comparison, shrunk):
        caption += " Hollow circles are FmFM with cached vectors, at full and reduced dimensions."
    if len(entries) > 1 and comparison.statistics:
        caption += (
            " A bar is the interval of the difference from the best model; if it reaches the line, they are tied."
        )
    chart = figure("AUC against FLOPs", [draw_quality(comparison, shrunk)], caption)
    shown = table(headings, rows, highlighted=highlighted)
    return section("Models", [shown, note, *failed, chart, differences(comparison.statistics, comparison.split)])


def differences(statistics: Statistics | None, split: str) -> str:
    """Show how much each model differs from the best one, and which differences are significant."""
    if statistics is None or len(statistics.metrics["auc"].models) < 2:
        return ""
    charts = [
        draw_differences(f"{metric_title(name)} − {metric.reference}", differences_from(statistics, name))
        for name, metric in statistics.metrics.items()
    ]
    caption = f"{statistics.caption(split)}. Hollow dots: no significant difference from the best model."
    for name, metric in statistics.metrics.items():
        tied = ", ".join(metric.tied) or "no other model"
        caption += (
            f" {metric_title(name)}: {metric.reference} is best; {tied} {'are' if len(metric.tied) > 1 else 'is'} tied."
        )
    metrics = list(statistics.metrics.values())
    rows = [
        (Unbroken(model), *("best" if model == m.reference else str(m.difference(model, m.reference)) for m in metrics))
        for model in metrics[0].models
    ]
    headings = ("model", *(f"{metric_title(name)} − {metric.reference}" for name, metric in statistics.metrics.items()))
    numbers = folded("Differences as a table", table(headings, rows))
    return figure("Differences from the best model", charts, caption, numbers)


def _quality_caption(entries: Sequence[Row], leaders: Sequence[str]) -> str:
    best = entries[0]
    caption = "Higher is better, further left is cheaper. "
    caption += f"{best['model']} has the highest AUC, at {best['flops']:,} FLOPs"
    tied = [model for model in leaders if model != best["model"]]
    caption += f", but the difference from {', '.join(tied)} is not significant." if tied else "."
    cheaper = next((entry for entry in entries if entry["flops"] < best["flops"]), None)
    if cheaper:
        loss, flops = best["auc"] - cheaper["auc"], cheaper["flops"]
        caption += f" The best cheaper model is {cheaper['model']}: {loss:.5f} less AUC at {flops:,} FLOPs."
    return caption


def learning(histories: Histories) -> str:
    """Show the learning curves."""
    curves = {name: rows for name, rows in histories.items() if rows}
    if not curves:
        return ""
    losses, title = (_with_training(curves), "log loss") if len(curves) == 1 else (curves, "validation log loss")
    charts = [draw_learning(losses, "log_loss", title), draw_learning(curves, "auc", "validation AUC")]
    best = {name: [row["epoch"] for row in rows if row.get("best")] for name, rows in curves.items()}
    epochs = ", ".join(f"{name} {values[-1]:.3g}" for name, values in best.items() if values)
    caption = f"Dots mark the best evaluation, whose weights the run keeps (epoch: {epochs}). "
    caption += "A validation loss that rises after its dot indicates overfitting."
    return section("Learning curves", [figure("Validation metrics by epoch", charts, caption)])


def _with_training(curves: Histories) -> Histories:
    """Add the training loss of a run to its validation loss."""
    ((_, rows),) = curves.items()
    losses = [(row["epoch"], row.get("training_loss")) for row in rows]
    training = [{"epoch": epoch, "log_loss": loss} for epoch, loss in losses if is_number(loss)]
    return {"validation": rows, **({"training": training} if training else {})}


def calibration(
    name: str,
    split: str,
    bins: Sequence[Mapping[str, float]],
    ratio: float | None,
    errors: Mapping[str, CalibrationError],
) -> str:
    """Compare predicted with observed click rates; ``ratio`` is predicted over observed clicks on all rows.

    ``errors`` has the expected calibration error before and, if the run is calibrated, after calibrating.
    """
    if not bins:
        return ""
    fewest, most = min(row["rows"] for row in bins), max(row["rows"] for row in bins)
    size = f"{fewest:,.0f}" if fewest == most else f"{fewest:,.0f} to {most:,.0f}"
    caption = (
        f"Predictions of {name} on {split} in {len(bins)} bins of {size} rows. On the dotted line, the observed click "
        "rate equals the predicted one. Bars are ± 2 standard errors."
    )
    if ratio is not None:
        caption += f" Over all rows, predicted clicks / observed clicks = {ratio:.3f}."
    rows = [(f"{row['rows']:,.0f}", f"{row['predicted']:.4f}", f"{row['observed']:.4f}") for row in bins]
    numbers = folded("Bins as a table", table(("rows", "predicted", "observed"), rows, text_columns=0))
    chart = figure("Predicted and observed click rates", [draw_calibration(bins)], caption, numbers)
    return section("Calibration", [chart, _calibration_errors(errors)])


def _calibration_errors(errors: Mapping[str, CalibrationError]) -> str:
    return paragraph(
        f"Expected calibration error, with a 95% bootstrap confidence interval: {'; '.join(error_lines(errors))}. "
        "Clicks are random, so even perfectly calibrated predictions have an error above 0; 5% of them would be called "
        "miscalibrated.",
        "soft",
    )


def shrinking(rows: Sequence[Mapping[str, Any]]) -> str:
    """Show the quality of smaller FmFMs: the paper's table 8."""
    if not rows:
        return ""
    full = rows[0]
    shown = [
        (
            "full" if row["variance"] is None else f"{row['variance']:.0%}",
            f"{row['dimension']:.2f} ({row['dimension'] / full['dimension']:.1%})",
            f"{row['flops']:,.0f} ({row['flops'] / full['flops']:.1%})",
            f"{row['auc']:.5f}",
            f"{row['log_loss']:.5f}",
        )
        for row in rows
    ]
    smallest = min(rows[1:] or rows, key=lambda row: row["flops"])
    caption = (
        f"The smallest model needs {smallest['flops'] / full['flops']:.1%} of the FLOPs; its AUC on "
        f"{full.get('split', 'test')} changes by {smallest['auc'] - full['auc']:+.5f}. FLOPs are with cached vectors."
    )
    headings = ("variance kept", "mean dimension", "FLOPs", "AUC", "log loss")
    return section("Quality by variance kept", [table(headings, shown), paragraph(caption, "soft")])


def settings(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Show the settings of every run, one column per run."""
    if not runs:
        return ""
    names = list(dict.fromkeys(name for values in runs.values() for name in values))
    rows = []
    for name in names:
        found = [values.get(name, "") for values in runs.values()]
        rows.append((name, *(", ".join(map(str, each)) if isinstance(each, list) else str(each) for each in found)))
    headings = ("setting", *map(Unbroken, runs))
    content = table(headings, rows, text_columns=len(headings))
    return section("Settings", [folded(f"Settings of {', '.join(runs)}", content)])
