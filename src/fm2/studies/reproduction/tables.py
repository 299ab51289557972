"""Tables with our figures beside the published ones, as Markdown that reads well on a terminal too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fm2.data.dataset import Dataset
from fm2.data.splits import SPLITS
from fm2.studies.comparison.results import Comparison
from fm2.studies.reproduction.published import CACHED, OPERATIONS, PARAMETERS, QUALITY, SAMPLES, SHRUNK, SHRUNK_MODEL
from fm2.training.run import Run


@dataclass(frozen=True)
class Table:
    """A table of texts; ``notes`` stand below it."""

    title: str
    header: Sequence[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Give it as Markdown, its columns aligned.

        >>> Table("T", ["a", "n"], [["x", "12"]]).lines()
        ['## T', '', '| a |  n |', '|---|---:|', '| x | 12 |', '']
        """
        widths = [max(2, *(len(row[place]) for row in (self.header, *self.rows))) for place in range(len(self.header))]
        widths[0] = max(len(row[0]) for row in (self.header, *self.rows))
        lines = [f"## {self.title}", "", _line(self.header, widths)]
        lines.append("|" + "-" * (widths[0] + 2) + "|" + "".join("-" * (width + 1) + ":|" for width in widths[1:]))
        lines += [_line(row, widths) for row in self.rows]
        return [*lines, "", *(part for note in self.notes for part in (note, ""))]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    rest = [f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "| " + " | ".join([f"{cells[0]:<{widths[0]}}", *rest]) + " |"


def samples(log: str, dataset: Dataset) -> Table:
    """Make table 5: rows, fields, features and the share of clicks."""
    published, splits = SAMPLES[log], dataset.manifest["splits"]
    rows = [[name, f"{splits[name]['rows']:,}", f"{getattr(published, name):,}"] for name in SPLITS]
    rows.append(["fields", str(len(dataset.schema.fields)), str(published.fields)])
    rows.append(["features", f"{sum(dataset.field_sizes):,}", f"{published.features:,}"])
    clicks, every = (sum(entry[key] for entry in splits.values()) for key in ("clicks", "rows"))
    rows.append(["pos:neg", f"1:{(every - clicks) / clicks:.2f}" if clicks else "", f"~1:{published.negatives}"])
    return Table(f"Table 5: {log.capitalize()}", ["", "here", "paper"], rows)


def quality(log: str, comparison: Comparison, others: dict[str, dict[str, float]]) -> Table:
    """Make table 6 or 7; ``others`` has the AUC on training and validation rows by run."""
    published = {row.model: row for row in QUALITY[log]}
    rows, quoted = [], False
    for entry in comparison.summary():
        known, runs = published[entry["model"]], [r["run"] for r in comparison.rows if r["model"] == entry["model"]]
        cells = [known.title + ("*" if known.quoted else "")]
        quoted |= known.quoted
        for split in ("train", "validation"):
            values = [others[run][split] for run in runs if run in others]
            cells += [_figure(sum(values) / len(values) if values else None), _figure(getattr(known, split), 4)]
        for name, theirs in (("auc", known.test), ("log_loss", known.log_loss)):
            spread = f" ± {entry['deviation'][name]:.5f}" if name in entry["deviation"] else ""
            cells += [_figure(entry[name]) + spread, _figure(theirs, 4)]
        rows.append(cells)
    header = ["model", "AUC, train", "paper", "validation", "paper", "test", "paper", "log loss, test", "paper"]
    notes = ["\\* the paper quotes these figures from the model's own paper."] if quoted else []
    notes += [f"{row['run']} failed: {row['error']}" for row in comparison.failed]
    return Table(f"Table {6 if log == 'criteo' else 7}: models on {log.capitalize()}", header, rows, notes)


def costs(log: str, comparison: Comparison) -> Table:
    """Make tables 2 and 4 of the models that were trained: parameters, and operations per prediction."""
    titles, on_criteo = {row.model: row.title for row in QUALITY[log]}, log == "criteo"
    rows = []
    for entry in comparison.summary():
        name = entry["model"]
        parameters = f"{PARAMETERS[name]:,.2f} M" if on_criteo and name in PARAMETERS else ""
        operations = f"{OPERATIONS[name]:,}" if on_criteo and name in OPERATIONS else ""
        cached = f"{CACHED:,}" if on_criteo and name == SHRUNK_MODEL else ""
        ours = [_count(entry[measure]) for measure in ("parameters", "flops", "flops_cached")]
        rows.append([titles[name], ours[0], parameters, ours[1], operations, ours[2], cached])
    header = ["model", "parameters", "paper", "FLOPs", "paper", "FLOPs, cached", "paper"]
    notes = [] if on_criteo else ["The paper has such figures for Criteo alone."]
    return Table("Tables 2 and 4: what these models cost", header, rows, notes)


def shrunk(rows: Sequence[dict[str, Any]]) -> Table:
    """Make table 8 of what :func:`fm2.compression.shrink.compare` found."""
    published = {row.variance: row for row in SHRUNK}
    full, cells = rows[0]["flops"], []
    for row in rows:
        known = published[row["variance"]]
        share = "full" if row["variance"] is None else f"{row['variance']:.0%}"
        flops = [f"{count:,} ({count / whole:.1%})" for count, whole in ((row["flops"], full), (known.flops, CACHED))]
        dims = [f"{row['dimension']:.2f}", f"{known.dimension:.2f}"]
        figures = [_figure(row["auc"]), _figure(known.auc, 4), _figure(row["log_loss"]), _figure(known.log_loss, 4)]
        cells.append([share, *dims, *flops, *figures])
    header = ["variance", "dimension", "paper", "FLOPs", "paper", "AUC, test", "paper", "log loss, test", "paper"]
    return Table("Table 8: FmFM with fewer dimensions", header, cells)


def aucs(run: Run, dataset: Dataset) -> dict[str, float]:
    """Measure what table 6 has beside the test rows."""
    return {split: run.evaluate(dataset, split)["auc"] for split in ("train", "validation")}


def _figure(value: float | None, places: int = 5) -> str:
    return "" if value is None else f"{value:.{places}f}"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
