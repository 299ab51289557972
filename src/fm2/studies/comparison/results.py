"""What a comparison found so far, and the files that hold it: compare.json and compare.csv."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.files import atomic_file
from fm2.models.specs.linear import LR

FORMAT, VERSION = "fm2 compare", 1
JSON, CSV = "compare.json", "compare.csv"
MEASURES = ("parameters", "flops", "flops_cached", "auc", "log_loss", "gap", "best_epoch", "seconds")
COLUMNS = ("model", "seed", "run", *MEASURES, "unfinished", "unsettled", "error")
BEST_POSSIBLE = "the best possible"


@dataclass
class Comparison:
    """Models trained and tested alike. ``rows`` has a row for every model and seed that is finished, or failed.

    A row tells parameters and operations (by the paper's counting; ``flops_cached`` with the transformed vectors at
    hand), quality on ``split``, and where the run is, in ``path``. Where the ``truth`` is known, ``gap`` is the share
    of the log loss between LR and the truth that the model closes. ``error`` says why there is nothing more.
    """

    path: Path
    data: str
    fingerprint: str
    split: str
    models: list[str]
    seeds: list[int]
    settings: dict[str, Any] = field(default_factory=dict)
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    truth: dict[str, float] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)  # seconds of trainings that were interrupted

    @classmethod
    def open(cls, path: str | Path, operation: str = "compare") -> Comparison:
        """Read the comparison in a directory; ``operation`` is what it is read for."""
        file = Path(path) / JSON
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            told = values.pop("format"), values.pop("version")
            if told != (FORMAT, VERSION):
                raise Fm2Error(f"{operation}: {file} has the format {told}; this fm2 reads {(FORMAT, VERSION)}")
            opened = cls(Path(path), **values)
            opened._check()
            return opened
        except FileNotFoundError as missing:
            raise Fm2Error(f"{operation}: {path} holds no comparison (no {JSON}); fm2 compare makes one") from missing
        except OSError as refused:
            raise Fm2Error(f"{operation}: {file}: {refused.strerror}") from refused
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
            raise Fm2Error(f"{operation}: {file} is damaged, or not a file of fm2's: {wrong!r}") from wrong

    def _check(self) -> None:
        """Raise an error of Python's unless all is as ``save`` writes it."""
        texts, numbers = [self.data, self.fingerprint, self.split, *self.models], [*self.seeds, *self.spent.values()]
        for row in self.rows:
            texts += [row["model"], row["run"], *([] if row["error"] is None else [row["error"]])]
            needed = () if row["error"] else ("parameters", "flops", "auc", "log_loss")
            numbers += [row["seed"], *(row[name] for name in MEASURES if row[name] is not None or name in needed)]
        numbers += [] if self.truth is None else [self.truth[name] for name in ("auc", "log_loss")]
        if not all(isinstance(value, str) for value in texts):
            raise TypeError("a name is no text")
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("a figure is no number")
        counts = [row[name] for row in self.rows for name in ("flops", "flops_cached") if row[name] is not None]
        if min(counts, default=1) < 1:
            raise ValueError("a model has no operations")
        if not all(isinstance(some, dict) for some in (self.settings, *self.own.values())):
            raise TypeError("settings are no table")

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of models that failed."""
        return [row for row in self.rows if row["error"]]

    def row(self, model: str, seed: int) -> dict[str, Any] | None:
        """Give the row of a model and seed, if there is one."""
        return next((row for row in self.rows if (row["model"], row["seed"]) == (model, seed)), None)

    def put(self, row: dict[str, Any]) -> None:
        """Add a row, or put it in the place of the one that is there; write the files anew."""
        others = [other for other in self.rows if other["run"] != row["run"]]
        self.spent.pop(row["run"], None)
        self.rows = sorted([*others, row], key=self._order)
        self.save()

    def _order(self, row: dict[str, Any]) -> tuple[int, int]:
        """Sort by the order in which models were named; those of earlier comparisons come last."""
        model = self.models.index(row["model"]) if row["model"] in self.models else len(self.models)
        return model, row["seed"]

    def save(self) -> None:
        """Write both files."""
        self._find_gaps()
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "path"}
        try:
            with atomic_file(self.path / JSON) as partial:
                text = json.dumps({"format": FORMAT, "version": VERSION, **values}, indent=1, ensure_ascii=False)
                partial.write_text(text + "\n", encoding="utf-8")
            with atomic_file(self.path / CSV) as partial, partial.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(self.rows)
                if self.truth:
                    writer.writerow({"model": BEST_POSSIBLE, **self.truth, "gap": 1.0})
        except OSError as refused:
            raise Fm2Error(f"compare: cannot write to {self.path}: {refused.strerror}") from refused

    def _find_gaps(self) -> None:
        linear = [row["log_loss"] for row in self.rows if row["model"] == LR.name and not row["error"]]
        known = self.truth is not None and linear
        whole = statistics.fmean(linear) - self.truth["log_loss"] if self.truth and linear else 0.0
        for row in self.rows:
            closes = known and whole > 0 and not row["error"]
            row["gap"] = (statistics.fmean(linear) - row["log_loss"]) / whole if closes else None

    def summary(self) -> list[dict[str, Any]]:
        """Give one entry per model: the means over its seeds, and as ``deviation`` how far these are apart.

        ``seeds`` is the number of them; a model that has none has failed, and its measures are None.
        """
        names = dict.fromkeys(row["model"] for row in self.rows)
        return [_mean(name, [row for row in self.rows if row["model"] == name]) for name in names]


def _mean(model: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if not row["error"]]
    found: dict[str, Any] = {"model": model, "seeds": len(good)}
    deviation: dict[str, float] = {}
    for name in MEASURES:
        values = [row[name] for row in good if row[name] is not None]
        whole = bool(values) and all(isinstance(value, int) for value in values)
        mean = statistics.fmean(values) if values else None
        found[name] = round(mean) if mean is not None and whole else mean
        if len(values) > 1 and not whole:
            deviation[name] = statistics.stdev(values)
    return {**found, "deviation": deviation}
