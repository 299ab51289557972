"""From trained models to the tables, settings and notes of a reproduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.studies.comparison.printing import TOO_SHORT
from fm2.studies.comparison.results import Comparison
from fm2.studies.comparison.runs import end_of_training
from fm2.studies.reproduction import costs, significance, tables
from fm2.studies.reproduction.page import dims_of
from fm2.studies.reproduction.protocol import common_settings, settings_per_model
from fm2.studies.reproduction.record import Reproduction
from fm2.studies.reproduction.tables import Table
from fm2.training.run import Run

EXECUTION = ("threads", "device")  # settings that do not change what is trained


class Results:
    """Fills in a reproduction as results become known."""

    def __init__(self, reproduction: Reproduction, dataset: Dataset, threads: int) -> None:
        self.reproduction, self._dataset, self._threads = reproduction, dataset, threads
        self.shrunk: Sequence[Mapping[str, Any]] = ()
        self._differences: dict[int, list[Table]] = {}  # by the number of the table that they follow
        self._comparison: Comparison | None = None
        self._aucs: dict[str, dict[str, float]] = {}

    def add_comparison(self, comparison: Comparison) -> None:
        """Add trained models: their settings, failures, notes, and AUC on training and validation rows."""
        self._comparison = comparison
        self.reproduction.failed = comparison.failed
        self.reproduction.changed = _changed(self.reproduction, comparison)
        finished = [row["run"] for row in comparison.rows if not row["error"]]
        self.reproduction.settings = {run: read_settings(comparison.path / run / SETTINGS) for run in finished}
        self.reproduction.notes = self._notes({str(row["run"]): row for row in comparison.rows})
        if {6, 7} & set(self.reproduction.numbers):
            for name in finished:
                run = Run.open(comparison.path / name, self._threads)
                splits = ("train", "validation")
                self._aucs[name] = {split: run.evaluate(self._dataset, split)["auc"] for split in splits}
            self._differences |= {number: significance.model_differences(comparison, number) for number in (6, 7)}

    def add_shrunk(self, of_seeds: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Add the smaller models of table 8, by seed."""
        self.shrunk = significance.combine_seeds(of_seeds)
        paths = [Path(row["run"]) for rows in of_seeds for row in rows if row["variance"] is not None]
        runs = {path.relative_to(self.reproduction.path).as_posix().removeprefix("shrink/"): path for path in paths}
        self.reproduction.settings |= {name: read_settings(path / SETTINGS) for name, path in runs.items()}
        self.reproduction.notes += self._notes({name: end_of_training(path) for name, path in runs.items()})
        if self.shrunk:
            measured = significance.measure_shrunk(self.shrunk, self._dataset, self._threads)
            self._differences[8] = significance.shrunk_differences(measured, self.shrunk[0]["split"])

    def _notes(self, ends: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Say which trainings should have had more epochs."""
        # With more epochs, FmFM would have other dimensions, so the runs of table 8 could not be resumed.
        option = "--overwrite" if 8 in self.reproduction.numbers else "--resume"
        advice = f"raise epochs in a file for --settings, and use {option}"
        too_short = {reason: [run for run, row in ends.items() if row.get(name)] for name, reason in TOO_SHORT.items()}
        return [
            f"{reason.capitalize()} at the last epoch of {', '.join(runs)}; {advice}."
            for reason, runs in too_short.items()
            if runs
        ]

    def save(self) -> None:
        """Make the tables that are requested and known so far, and write all files."""
        made = self._tables()
        self.reproduction.tables = [
            table
            for number in self.reproduction.numbers
            if number in made
            for table in (made[number](), *self._differences.get(number, []))
        ]
        self.reproduction.save()

    def _tables(self) -> dict[int, Callable[[], Table]]:
        """Return a function for each table that can be made."""
        log, comparison, shrunk = self.reproduction.log, self._comparison, self.shrunk
        settings = self.reproduction.model_settings
        summary = comparison.summary() if comparison else []
        made: dict[int, Callable[[], Table]] = {
            1: costs.freedom,
            2: lambda: costs.parameters(summary, settings),
            3: lambda: costs.dimensions(self._dataset, dims_of(shrunk, self._threads)),
            4: lambda: costs.operations(summary, shrunk),
            5: lambda: tables.samples(log, self._dataset),
        }
        if comparison:
            made[6 if log == "criteo" else 7] = lambda: tables.quality(log, comparison, self._aucs, settings)
        if shrunk:
            made[8] = lambda: tables.shrunk(shrunk)
        return made


def _changed(reproduction: Reproduction, comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Return the settings that differ from the protocol: those of all models under "", and those of single models."""
    protocol, log = reproduction.protocol, reproduction.log
    layers = {"": (comparison.settings, common_settings(protocol))}
    own = settings_per_model(protocol, log, comparison.models)
    layers |= {model: (values, own.get(model, {})) for model, values in comparison.model_settings.items()}
    changed = {}
    for model, (used, expected) in layers.items():
        new = {name: value for name, value in used.items() if name not in EXECUTION and value != expected.get(name)}
        if new:
            changed[model] = new
    return changed
