"""The report's sections on models: summary, comparison, learning curves, calibration, shrinking, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fm2.studies.reporting.charts import cached_dots, draw_calibration, draw_learning, draw_quality
from fm2.studies.reporting.inputs import Entry, Study, is_number, mean_auc
from fm2.studies.reporting.page import Unbroken, cards, figure, folded, paragraph, section, table

Histories = Mapping[str, Sequence[Mapping[str, Any]]]


def summary(study: Study, best: Entry, facts: Sequence[tuple[str, str]]) -> str:
    """Show the best model with its mean metrics and its costs."""
    seeds = study.models[best.model]
    shown = [
        ("best model" if len(study.entries) > 1 else "model", Unbroken(best.model)),
        (f"AUC ({study.split})", f"{mean_auc(seeds):.5f}"),
        (f"log loss ({study.split})", f"{fmean(entry.log_loss for entry in seeds):.5f}"),
        ("FLOPs per prediction", f"{best.flops:,}"),
        ("parameters", f"{best.parameters:,}"),
        *facts,
    ]
    if study.truth:
        shown.append(("best possible AUC", f"{study.truth['auc']:.5f}"))
    return cards(shown)


def models(study: Study, shrunk: Sequence[Mapping[str, Any]]) -> str:
    """Show all models of a comparison in a table, and their AUC against their FLOPs."""
    failed = [paragraph(f"{e.model}, seed {e.seed}, failed: {e.error}") for e in study.entries if e.error is not None]
    if not study.models or len(study.entries) < 2:
        return section("Models", failed)
    ranked = sorted(study.models.items(), key=lambda item: -mean_auc(item[1]))
    headings = ("model", "AUC", "log loss", "parameters", "FLOPs", "FLOPs, cached", "best epoch", "seconds")
    rows = [(Unbroken(model), *_figures(entries)) for model, entries in ranked]
    seeds = max(len(entries) for entries in study.models.values())
    note = paragraph(f"Mean ± standard deviation of {seeds} seeds.", "soft") if seeds > 1 else ""
    caption = _quality_caption(ranked)
    if cached_dots(study, shrunk):
        caption += " Hollow circles are FmFM with cached vectors, at full and reduced dimensions."
    chart = figure("AUC against FLOPs", [draw_quality(study, shrunk)], caption)
    return section("Models", [table(headings, rows, highlighted=0), note, *failed, chart])


def _figures(entries: Sequence[Entry]) -> tuple[str, ...]:
    first = entries[0]
    epochs = [entry.best_epoch for entry in entries if entry.best_epoch is not None]
    seconds = [entry.seconds for entry in entries if entry.seconds is not None]
    return (
        _mean([entry.auc for entry in entries]),
        _mean([entry.log_loss for entry in entries]),
        f"{first.parameters:,}",
        f"{first.flops:,}",
        f"{first.flops_cached:,.0f}" if first.flops_cached else "",
        f"{fmean(epochs):.2f}" if epochs else "",
        f"{fmean(seconds):,.1f}" if seconds else "",
    )


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.5f}" + (f" ± {stdev(values):.5f}" if len(values) > 1 else "")


def _quality_caption(ranked: Sequence[tuple[str, Sequence[Entry]]]) -> str:
    name, best = ranked[0]
    caption = f"Higher is better, further left is cheaper. {name} has the highest AUC, at {best[0].flops:,} FLOPs."
    cheaper = [(model, entries) for model, entries in ranked[1:] if entries[0].flops < best[0].flops]
    if cheaper:
        model, entries = cheaper[0]
        loss = mean_auc(best) - mean_auc(entries)
        caption += f" The best cheaper model is {model}: {loss:.5f} less AUC at {entries[0].flops:,} FLOPs."
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


def calibration(name: str, split: str, bins: Sequence[Mapping[str, float]], ratio: float | None) -> str:
    """Compare predicted with observed click rates; ``ratio`` is predicted over observed clicks on all rows."""
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
    return section("Calibration", [chart])


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
    rows = [(name, *(_setting(values.get(name, "")) for values in runs.values())) for name in names]
    headings = ("setting", *map(Unbroken, runs))
    content = table(headings, rows, text_columns=len(headings))
    return section("Settings", [folded(f"Settings of {', '.join(runs)}", content)])


def _setting(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
