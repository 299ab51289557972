"""Markdown tables with measured and published figures, aligned to read well in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fm2.data.dataset import Dataset
from fm2.data.splits import SPLITS
from fm2.studies.comparison.printing import optional, score
from fm2.studies.comparison.results import Comparison
from fm2.studies.reproduction.published import (
    CACHED,
    OPERATIONS,
    PARAMETERS,
    QUALITY,
    SAMPLES,
    SHRUNK,
    SHRUNK_MODEL,
    Quality,
)


@dataclass(frozen=True)
class Table:
    """A table of strings, with notes below it."""

    title: str
    header: Sequence[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the lines of the table in Markdown, with aligned columns.

        >>> Table("T", ["a", "n"], [["x", "12"]]).lines()
        ['## T', '', '| a |  n |', '|---|---:|', '| x | 12 |', '']
        """
        columns = list(zip(self.header, *self.rows, strict=True))
        widths = [max(len(cell) for cell in column) for column in columns]
        widths[1:] = [max(2, width) for width in widths[1:]]  # a right-aligned column needs "-:"
        lines = [f"## {self.title}", "", _line(self.header, widths)]
        lines.append("|" + "-" * (widths[0] + 2) + "|" + "".join("-" * (width + 1) + ":|" for width in widths[1:]))
        lines += [_line(row, widths) for row in self.rows]
        return [*lines, "", *(part for note in self.notes for part in (note, ""))]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = [f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "| " + " | ".join([f"{cells[0]:<{widths[0]}}", *numbers]) + " |"


def samples(log: str, dataset: Dataset) -> Table:
    """Make table 5: rows, fields, features and class balance."""
    published, splits = SAMPLES[log], dataset.manifest["splits"]
    rows = [[name, f"{splits[name]['rows']:,}", f"{getattr(published, name):,}"] for name in SPLITS]
    rows.append(["fields", str(len(dataset.schema.fields)), str(published.fields)])
    rows.append(["features", f"{sum(dataset.field_sizes):,}", f"{published.features:,}"])
    clicks = sum(entry["clicks"] for entry in splits.values())
    total = sum(entry.get("impressions", entry["rows"]) for entry in splits.values())
    rows.append(["pos:neg", f"1:{(total - clicks) / clicks:.2f}" if clicks else "", f"~1:{published.negatives}"])
    return Table(f"Table 5: {log.capitalize()}", ["", "fm2", "paper"], rows)


def quality(log: str, comparison: Comparison, aucs: dict[str, dict[str, float]]) -> Table:
    """Make table 6 or 7. ``aucs`` has the AUC on training and validation rows, by run."""
    published = {row.model: row for row in QUALITY[log]}
    summary = comparison.summary()
    rows = []
    for entry in summary:
        runs = [row["run"] for row in comparison.rows if row["model"] == entry["model"]]
        rows.append(_quality_row(published[entry["model"]], entry, [aucs[run] for run in runs if run in aucs]))
    header = ["model", "AUC, train", "paper", "validation", "paper", "test", "paper", "log loss, test", "paper"]
    quoted = any(published[entry["model"]].quoted for entry in summary)
    notes = ["\\* The paper quotes these figures from the model's original paper."] if quoted else []
    notes += [f"{row['run']} failed: {row['error']}" for row in comparison.failed]
    return Table(f"Table {6 if log == 'criteo' else 7}: models on {log.capitalize()}", header, rows, notes)


def _quality_row(published: Quality, entry: dict[str, Any], aucs: Sequence[dict[str, float]]) -> list[str]:
    cells = [published.title + ("*" if published.quoted else "")]
    for split in ("train", "validation"):
        mean = fmean(auc[split] for auc in aucs) if aucs else None
        cells += [optional(mean, ".5f"), optional(getattr(published, split), ".4f")]
    return [*cells, score(entry, "auc"), f"{published.test:.4f}", score(entry, "log_loss"), f"{published.log_loss:.4f}"]


def costs(log: str, comparison: Comparison) -> Table:
    """Make tables 2 and 4 for the trained models: parameters, and FLOPs per prediction."""
    titles, on_criteo = {row.model: row.title for row in QUALITY[log]}, log == "criteo"
    rows = []
    for entry in comparison.summary():
        name = entry["model"]
        parameters = f"{PARAMETERS[name]:,.2f} M" if on_criteo and name in PARAMETERS else ""
        operations = f"{OPERATIONS[name]:,}" if on_criteo and name in OPERATIONS else ""
        cached = f"{CACHED:,}" if on_criteo and name == SHRUNK_MODEL else ""
        counts = [optional(entry[measure], ",") for measure in ("parameters", "flops", "flops_cached")]
        rows.append([titles[name], counts[0], parameters, counts[1], operations, counts[2], cached])
    header = ["model", "parameters", "paper", "FLOPs", "paper", "FLOPs, cached", "paper"]
    notes = [] if on_criteo else ["The paper has these figures only for Criteo."]
    return Table("Tables 2 and 4: parameters and FLOPs", header, rows, notes)


def shrunk(rows: Sequence[dict[str, Any]]) -> Table:
    """Make table 8 from the results of :func:`fm2.compression.shrink.compare`."""
    published = {row.variance: row for row in SHRUNK}
    full, cells = rows[0]["flops"], []
    for row in rows:
        paper = published[row["variance"]]
        share = "full" if row["variance"] is None else f"{row['variance']:.0%}"
        flops = [f"{part:,} ({part / total:.1%})" for part, total in ((row["flops"], full), (paper.flops, CACHED))]
        dims = [f"{row['dimension']:.2f}", f"{paper.dimension:.2f}"]
        metrics = [f"{row['auc']:.5f}", f"{paper.auc:.4f}", f"{row['log_loss']:.5f}", f"{paper.log_loss:.4f}"]
        cells.append([share, *dims, *flops, *metrics])
    header = ["variance", "dimension", "paper", "FLOPs", "paper", "AUC, test", "paper", "log loss, test", "paper"]
    return Table("Table 8: FmFM with fewer dimensions", header, cells)
