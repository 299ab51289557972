"""Markdown tables with measured and published figures, aligned to read well in a terminal: tables 5 to 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from fm2.data.dataset import Dataset
from fm2.data.manifest import impressions
from fm2.data.splits import SPLITS
from fm2.studies.comparison.printing import optional, score
from fm2.studies.comparison.results import Comparison
from fm2.studies.reproduction.published import CACHED, QUALITY, SAMPLES, SHRUNK, Quality, title_of


@dataclass(frozen=True)
class Table:
    """A table of strings, with notes below it. The first ``text_columns`` hold text, the others numbers."""

    title: str
    header: Sequence[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    text_columns: int = 1

    def lines(self) -> list[str]:
        """Return the lines of the table in Markdown, with aligned columns.

        >>> Table("T", ["a", "n"], [["x", "12"]]).lines()
        ['## T', '', '| a |  n |', '|---|---:|', '| x | 12 |', '']
        """
        columns = list(zip(self.header, *self.rows, strict=True))
        widths = [max(2, *(len(cell) for cell in column)) for column in columns]  # a right-aligned column needs "-:"
        widths[0] = max(len(cell) for cell in columns[0])
        rules = ["-" * (width + 2) if self._is_text(n) else "-" * (width + 1) + ":" for n, width in enumerate(widths)]
        lines = [f"## {self.title}", "", self._line(self.header, widths), "|" + "|".join(rules) + "|"]
        lines += [self._line(row, widths) for row in self.rows]
        return [*lines, "", *(part for note in self.notes for part in (note, ""))]

    def _is_text(self, column: int) -> bool:
        return column < self.text_columns

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            cell.ljust(width) if self._is_text(number) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"


def features_of(dataset: Dataset) -> list[int]:
    """Return the number of features of each field as the paper counts them: without the unknown one."""
    return [size - 1 for size in dataset.field_sizes]


def samples(log: str, dataset: Dataset) -> Table:
    """Make table 5: rows, fields, features and class balance."""
    published, splits = SAMPLES[log], dataset.manifest["splits"]
    rows = [[name, f"{splits[name]['rows']:,}", f"{getattr(published, name):,}"] for name in SPLITS]
    rows.append(["fields", str(len(dataset.schema.fields)), str(published.fields)])
    rows.append(["features", f"{sum(features_of(dataset)):,}", f"{published.features:,}"])
    clicks = sum(entry["clicks"] for entry in splits.values())
    total = sum(map(impressions, splits.values()))
    rows.append(["pos:neg", f"1:{(total - clicks) / clicks:.2f}" if clicks else "", f"~1:{published.negatives}"])
    notes = ["Features do not include the unknown one that every field has."]
    missing = sum(bool(np.any(np.diff(values.ends, prepend=np.uint64(0)) == 0)) for values in dataset.vocabularies)
    if missing:
        notes.append(f"{missing} of them are the missing value of a field, which the authors' code counts as unknown.")
    return Table(f"Table 5: {log.capitalize()}", ["", "fm2", "paper"], rows, notes)


def quality(
    log: str,
    comparison: Comparison,
    aucs: Mapping[str, Mapping[str, float]],
    settings: Mapping[str, Mapping[str, Any]],
) -> Table:
    """Make table 6 or 7. ``aucs`` has the AUC on training and validation rows, by run; ``settings`` are by model."""
    published = {row.model: row for row in QUALITY[log]}
    summary = comparison.summary()
    rows = []
    for entry in summary:
        name = entry["model"]
        found = [aucs[row["run"]] for row in comparison.rows if row["model"] == name and row["run"] in aucs]
        epochs = settings.get(name, {}).get("epochs", "")
        epoch = f"{entry['best_epoch']:.3g} of {epochs}" if entry["best_epoch"] is not None else ""
        rows.append([*_quality_row(name, published.get(name), entry, found), epoch])
    header = ["model", "AUC, train", "paper", "validation", "paper", "test", "paper", "log loss, test", "paper"]
    quoted = any(row.quoted for name, row in published.items() if name in comparison.models)
    notes = ["\\* The paper quotes these figures from the model's original paper."] if quoted else []
    notes += [f"{row['run']} failed: {row['error']}" for row in comparison.failed]
    title = f"Table {6 if log == 'criteo' else 7}: models on {log.capitalize()}"
    return Table(title, [*header, "best epoch"], rows, notes)


def _quality_row(
    name: str, published: Quality | None, entry: Mapping[str, Any], aucs: Sequence[Mapping[str, float]]
) -> list[str]:
    paper = {each: None if published is None else getattr(published, each) for each in (*SPLITS, "log_loss")}
    cells = [title_of(name) + ("*" if published is not None and published.quoted else "")]
    for split in ("train", "validation"):
        mean = fmean(auc[split] for auc in aucs) if aucs else None
        cells += [optional(mean, ".5f"), optional(paper[split], ".4f")]
    for measure, of_paper in (("auc", paper["test"]), ("log_loss", paper["log_loss"])):
        cells += [score(entry, measure), optional(of_paper, ".4f")]
    return cells


def shrunk(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make table 8 from the results of :func:`fm2.compression.shrink.compare`, combined over seeds."""
    published = {row.variance: row for row in SHRUNK}
    full, cells = rows[0]["flops"], []
    for row in rows:
        paper = published[row["variance"]]
        share = "full" if row["variance"] is None else f"{row['variance']:.0%}"
        flops = [f"{part:,} ({part / total:.1%})" for part, total in ((row["flops"], full), (paper.flops, CACHED))]
        dims = [f"{row['dimension']:.2f}", f"{paper.dimension:.2f}"]
        metrics = [score(row, "auc"), f"{paper.auc:.4f}", score(row, "log_loss"), f"{paper.log_loss:.4f}"]
        cells.append([share, *dims, *flops, *metrics])
    header = ["variance", "dimension", "paper", "FLOPs", "paper", "AUC, test", "paper", "log loss, test", "paper"]
    return Table("Table 8: FmFM with fewer dimensions", header, cells)
