"""The sections of a report: what is shown of the models, and one sentence on how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fm2.studies.reporting.charts import draw_calibration, draw_learning, draw_quality
from fm2.studies.reporting.inputs import Entry, Study, is_number
from fm2.studies.reporting.markup import cards, figure, folded, paragraph, section, table

History = Mapping[str, Sequence[Mapping[str, Any]]]


def summary(study: Study, best: Entry, facts: Sequence[tuple[str, str]]) -> str:
    """Tell what matters most: the best model, its quality, which is the mean of its seeds, and its cost."""
    seeds = study.models[best.model]
    shown = [
        ("best model" if len(study.entries) > 1 else "model", best.model),
        (f"AUC, on {study.split}", f"{fmean(entry.auc for entry in seeds):.5f}"),
        (f"log loss, on {study.split}", f"{fmean(entry.log_loss for entry in seeds):.5f}"),
        ("FLOPs for one prediction", f"{best.flops:,}"),
        ("parameters", f"{best.parameters:,}"),
        *facts,
    ]
    if study.truth:
        shown.append(("best possible AUC", f"{study.truth['auc']:.5f}"))
    return cards(shown)


def models(study: Study, shrunk: Sequence[Mapping[str, Any]]) -> str:
    """Show all models of a comparison: in a table, and AUC against FLOPs."""
    if len(study.entries) < 2:
        return ""
    failed = [paragraph(f"{e.model}, seed {e.seed}, failed: {e.error}") for e in study.entries if e.error is not None]
    if not study.models:
        return section("Models", failed)
    ranked = sorted(study.models.items(), key=lambda item: -fmean(entry.auc for entry in item[1]))
    headings = ("model", "parameters", "FLOPs", "AUC", "log loss", "best epoch", "seconds")
    rows = [(model, *_figures(some)) for model, some in ranked]
    several = max(len(some) for some in study.models.values())
    note = f"Means of {several} seeds, ± their standard deviation." if several > 1 else ""
    picture = figure("AUC against FLOPs", [draw_quality(study, shrunk)], _read_quality(ranked))
    return section("Models", [table(headings, rows, chosen=0), note and paragraph(note, "soft"), *failed, picture])


def _figures(some: Sequence[Entry]) -> tuple[str, ...]:
    epochs = [entry.best_epoch for entry in some if entry.best_epoch is not None]
    seconds = [entry.seconds for entry in some if entry.seconds is not None]
    return (
        f"{some[0].parameters:,}",
        f"{some[0].flops:,}" + (f"; cached {some[0].flops_cached:,.0f}" if some[0].flops_cached else ""),
        _mean([entry.auc for entry in some]),
        _mean([entry.log_loss for entry in some]),
        f"{fmean(epochs):.2f}" if epochs else "",
        f"{fmean(seconds):,.0f}" if seconds else "",
    )


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.5f}" + (f" ± {stdev(values):.5f}" if len(values) > 1 else "")


def _read_quality(ranked: Sequence[tuple[str, Sequence[Entry]]]) -> str:
    name, best = ranked[0]
    said = f"Up is better, left is cheaper: {name} is the best, with {best[0].flops:,} FLOPs"
    cheaper = [(model, some) for model, some in ranked[1:] if some[0].flops < best[0].flops]
    if cheaper:
        model, some = cheaper[0]
        lost = fmean(entry.auc for entry in best) - fmean(entry.auc for entry in some)
        said += f"; of the cheaper ones {model} loses least, {lost:.5f} of AUC with {some[0].flops:,} FLOPs"
    return f"{said}. Circles, if there are any, are FmFM with cached vectors, and with fewer dimensions."


def learning(histories: History) -> str:
    """Show how the models learned."""
    told = {name: rows for name, rows in histories.items() if rows}
    if not told:
        return ""
    losses, title = (_with_training(told), "log loss") if len(told) == 1 else (told, "validation log loss")
    pictures = [draw_learning(losses, "log_loss", title), draw_learning(told, "auc", "validation AUC")]
    kept = {name: [row["epoch"] for row in rows if row.get("best")] for name, rows in told.items()}
    ends = ", ".join(f"{name} after {epochs[-1]:.3g}" for name, epochs in kept.items() if epochs)
    reading = (
        f"Each dot is the state that was kept, in epochs: {ends}; a line that gets worse after it has begun to fit the "
        "training rows too well."
    )
    return section("Learning curves", [figure("Quality after so many epochs", pictures, reading)])


def _with_training(told: History) -> History:
    """Put what a run lost on the rows it was learning from beside what it lost on validation."""
    ((_, rows),) = told.items()
    losses = [(row["epoch"], row.get("training_loss")) for row in rows]
    learned = [{"epoch": epoch, "log_loss": loss} for epoch, loss in losses if is_number(loss)]
    return {"validation": rows, **({"training": learned} if learned else {})}


def calibration(name: str, split: str, bins: Sequence[Mapping[str, float]], over_all: float | None) -> str:
    """Show whether as many rows are clicked as the model predicts."""
    if not bins:
        return ""
    fewest, most = min(row["rows"] for row in bins), max(row["rows"] for row in bins)
    many = f"{fewest:,.0f}" if fewest == most else f"{fewest:,.0f} to {most:,.0f}"
    reading = (
        f"Dots on the dotted line mean that what {name} predicts comes true; the {len(bins)} bins have {many} rows of "
        f"{split} each, bars are two standard errors"
    )
    reading += (
        "." if over_all is None else f", and over all rows it predicts {over_all:.3f} times the clicks that were."
    )
    rows = [(f"{row['rows']:,.0f}", f"{row['predicted']:.4f}", f"{row['observed']:.4f}") for row in bins]
    numbers = folded("The bins in numbers", table(("rows", "predicted", "observed"), rows, words_first=0))
    return section(
        "Calibration", [figure("Predicted and observed click rates", [draw_calibration(bins)], reading, numbers)]
    )


def shrinking(rows: Sequence[Mapping[str, Any]]) -> str:
    """Show what a smaller FmFM costs in quality: the paper's table 8."""
    if not rows:
        return ""
    first = rows[0]
    shown = [
        (
            "full" if row["variance"] is None else f"{row['variance']:g}",
            f"{row['dimension']:.2f} ({row['dimension'] / first['dimension']:.1%})",
            f"{row['flops']:,.0f} ({row['flops'] / first['flops']:.1%})",
            f"{row['auc']:.5f}",
            f"{row['log_loss']:.5f}",
        )
        for row in rows
    ]
    smallest = min(rows[1:] or rows, key=lambda row: row["flops"])
    reading = (
        f"With {smallest['flops'] / first['flops']:.1%} of the operations, AUC on {first.get('split', 'test')} changes "
        f"by {smallest['auc'] - first['auc']:+.5f}; FLOPs are those of the cached form."
    )
    headings = ("variance kept", "mean dimension", "FLOPs", "AUC", "log loss")
    return section("Quality against variance", [table(headings, shown), paragraph(reading, "soft")])


def settings(told: Mapping[str, Mapping[str, Any]]) -> str:
    """Show the settings of every run, side by side where there are several."""
    if not told:
        return ""
    names = list(dict.fromkeys(name for values in told.values() for name in values))
    rows = [(name, *(_setting(values.get(name, "")) for values in told.values())) for name in names]
    return section(
        "Settings", [folded(f"The settings of {', '.join(told)}", table(("", *told), rows, words_first=1 + len(told)))]
    )


def _setting(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
