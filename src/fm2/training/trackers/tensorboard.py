"""TensorBoard event files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import EVENTS
from fm2.errors import require
from fm2.training.tracking import Evaluation, Tracker, scalars


class TensorBoard(Tracker):
    """Writes event files to the run's subdirectory ``tensorboard``, or to ``directory``/NAME, the name of the run.

    The candidates of a race have subdirectories there: ``candidate-1``, ``candidate-2`` and so on. The event files of a
    resumed or replaced run are rewritten from its history, so its curves have no gaps or duplicate points.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._module = require("torch.utils.tensorboard", "tensorboard", "tracking with TensorBoard")
        self._directory = None if directory is None else Path(directory)
        self._target: Path | None = None  # of a candidate
        self._writer: Any = None
        self._settings: dict[str, Any] = {}

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Write the settings and the earlier evaluations."""
        target = self._target or self._target_of(path)
        # Runs with the same name may share a directory; the suffix identifies the files of each.
        suffix = f".fm2-{hashlib.sha256(bytes(path.resolve())).hexdigest()[:12]}"
        for old in target.glob(f"events.out.tfevents.*{suffix}"):
            old.unlink()
        self._settings = {
            name: value if isinstance(value, int | float) else str(value) for name, value in settings.items()
        }
        self._writer = self._module.SummaryWriter(target, filename_suffix=suffix)
        rows = [f"| {name} | {value} |" for name, value in settings.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]))
        for evaluation in history or ():
            self.evaluated(evaluation)
        self._writer.flush()

    def _target_of(self, run: Path) -> Path:
        return self._directory / run.resolve().name if self._directory else run / EVENTS

    def candidate(self, name: str, run: Path) -> TensorBoard:
        """Return a tracker that writes the curves of a candidate into a directory of its own."""
        tracker = TensorBoard(self._directory)
        tracker._target = self._target_of(run) / name
        return tracker

    def evaluated(self, evaluation: Evaluation) -> None:
        """Add a point to every curve."""
        for name, value in scalars(evaluation).items():
            self._writer.add_scalar(name, value, evaluation["step"])
        self._writer.flush()

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Add the best evaluation's metrics, which TensorBoard compares across runs and settings."""
        if metrics is not None:
            best = {f"best/{name}": value for name, value in metrics.items()}
            for summary in self._module.summary.hparams(self._settings, best):
                self._writer.file_writer.add_summary(summary)
            for name, value in best.items():
                self._writer.add_scalar(name, value)
        self._writer.close()
