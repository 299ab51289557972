"""The results of an ablation, and the files that store them: ablate.json and ablate.csv."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fm2.evaluation.metrics import metric_title
from fm2.files import write_errors, write_text
from fm2.remote.paths import local_path
from fm2.studies.ablation.variants import COMPLETE
from fm2.studies.result_files import StudyResults, read_results, write_csv
from fm2.studies.statistics import Statistics

FORMAT, VERSION = "fm2 ablation", 1
JSON, CSV = "ablate.json", "ablate.csv"
MEASURES = ("parameters", "flops", "auc", "log_loss", "seconds")
COLUMNS = ("variant", "kind", "key", "model", "seed", "run", *MEASURES, "error")


@dataclass
class Ablation(StudyResults):
    """The results of an ablation of a run's model. ``rows`` has a row for every variant and seed.

    A variant is the ``complete`` model, one without a field, or one with a part replaced. ``statistics`` compares each
    with the complete model. ``gaps`` has the difference of test and training loss by the frequency of features,
    ``embeddings`` the embeddings of some fields in two dimensions.
    """

    path: Path
    run: str
    data: str
    fingerprint: str
    split: str
    model: str
    seeds: list[int]
    settings: dict[str, Any] = field(default_factory=dict)
    fields: list[str] | None = None
    parts: bool = True
    variants: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    gaps: dict[str, Any] | None = None
    embeddings: list[dict[str, Any]] = field(default_factory=list)
    statistics: Statistics | None = None

    @classmethod
    def open(cls, path: str | Path, operation: str = "ablate") -> Ablation:
        """Read the ablation in a directory. Errors start with ``operation``."""

        path = local_path(path)

        def make(values: dict[str, Any]) -> Ablation:
            statistics = values.pop("statistics")
            ablation = cls(path, **values, statistics=statistics and Statistics.from_dict(statistics))
            _check(ablation)
            return ablation

        return read_results(path / JSON, "an ablation", (FORMAT, VERSION), operation, make)

    def finished_runs(self, *kinds: str) -> dict[str, list[str]]:
        """Return the runs that did not fail by variant, of these kinds or of all."""
        runs: dict[str, list[str]] = {}
        for row in self.rows:
            if not row["error"] and (not kinds or row["kind"] in kinds):
                runs.setdefault(row["variant"], []).append(row["run"])
        return runs

    def put(self, row: dict[str, Any]) -> None:
        """Add a row, or replace the row of the same run, and write the files."""
        order = {variant["key"]: number for number, variant in enumerate(self.variants)}
        others = [other for other in self.rows if other["run"] != row["run"]]
        self.rows = sorted([*others, row], key=lambda row: (order.get(row["key"], len(order)), row["seed"]))
        self.statistics, self.gaps, self.embeddings = None, None, []
        self.save()

    def text(self) -> str:
        """Return the content of ablation.json."""
        return self.to_json(FORMAT, VERSION)

    def save(self) -> None:
        """Write all files."""
        with write_errors(self.path, "ablate"):
            write_text(self.path / JSON, self.text())
            write_csv(self.path / CSV, (*COLUMNS, *self._difference_columns), map(self._with_differences, self.rows))

    @property
    def _difference_columns(self) -> list[str]:
        names = self.statistics.metrics if self.statistics else ()
        return [f"{name}_{part}" for name in names for part in ("difference", "low", "high", "significant")]

    def _with_differences(self, row: dict[str, Any]) -> dict[str, Any]:
        """Add the differences of a variant from the complete model, means over seeds, to the row of a run."""
        if self.statistics is None or row["error"] or row["variant"] == COMPLETE:
            return row
        values: list[Any] = []
        for metric in self.statistics.metrics.values():
            pair = metric.difference(row["variant"], COMPLETE)
            values += [pair.difference, pair.low, pair.high, pair.significant]
        return row | dict(zip(self._difference_columns, values, strict=True))

    def lines(self) -> list[str]:
        """Return the lines of a table: every variant, its scores, and how they differ from the complete model."""
        variants = self.finished_runs()
        if not variants:
            return [f"{row['run']} failed: {row['error']}" for row in self.failed]
        width, cell = max(map(len, variants)), 30
        metrics = self.statistics.metrics if self.statistics else {}
        changes = " ".join(f"{f'{metric_title(name)} − complete':>{cell}} " for name in metrics)
        table = [f"{'':<{width}} {'parameters':>13} {'AUC':>8} {'log loss':>8} {changes}".rstrip()]
        for variant in variants:
            rows = [row for row in self.rows if row["variant"] == variant and not row["error"]]
            auc, loss = (fmean(row[name] for row in rows) for name in ("auc", "log_loss"))
            cells = []
            for metric in metrics.values() if variant != COMPLETE else ():
                pair = metric.difference(variant, COMPLETE)
                cells.append(f"{pair!s:>{cell}}{'*' if pair.significant else ' '}")
            scores = f"{rows[0]['parameters']:>13,} {auc:>8.5f} {loss:>8.5f}"
            table.append(f"{variant:<{width}} {scores} {' '.join(cells)}".rstrip())
        if self.statistics:
            table += ["* significantly different from the complete model", self.statistics.caption(self.split)]
        return table + [f"{row['run']} failed: {row['error']}" for row in self.failed]


def _check(ablation: Ablation) -> None:
    """Raise an error if values of a file have other types than those that fm2 writes."""
    for row in ablation.rows:
        _ = [row[name] for name in COLUMNS]
        if row["run"] in ("", "..") or row["run"] != Path(row["run"]).name:
            raise ValueError(f"expected the name of a run, got {row['run']!r}")
    if not isinstance(ablation.seeds, list) or not all(type(seed) is int for seed in ablation.seeds):
        raise ValueError("seeds must be a list of integers")
    for values, names in ((ablation.variants, ("key",)), (ablation.embeddings, ("field", "features", "variance"))):
        if not all(set(names) <= set(each.keys()) for each in values):
            raise ValueError(f"expected the keys {', '.join(names)}")
    if ablation.gaps is not None and ablation.gaps.keys() != {"bins", "shares", "models"}:
        raise ValueError("the gaps are incomplete")
