"""Trackers: receive a training's settings, every evaluation, and the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from fm2.artifacts.settings import Settings
from fm2.errors import printable
from fm2.training.loop import TrainingProgress
from fm2.training.progress import say
from fm2.training.run import HISTORY, read_history

Evaluation = dict[str, Any]

# The entries of an evaluation that are not metrics of the validation rows.
_PROGRESS = ("epoch", "step", "training_loss", "best", "settled")


class Tracker(Protocol):
    """Follows a training. A subclass implements the methods that it needs.

    >>> class Printer(Tracker):
    ...     def evaluated(self, evaluation):
    ...         print(f"step {evaluation['step']}: {figures(evaluation)}")
    >>> evaluation = {"epoch": 0.5, "step": 20, "training_loss": 0.45, "best": True, "settled": False, "auc": 0.75}
    >>> Printer().evaluated(evaluation)
    step 20: {'epoch': 0.5, 'training/log_loss': 0.45, 'validation/auc': 0.75}
    """

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Receive the settings and directory of a training that begins.

        ``history`` has the evaluations before a resumed training; it is None for a new one. A run that was killed
        continues from its last checkpoint, so a tracker may receive some evaluations twice.
        """

    def evaluated(self, evaluation: Evaluation) -> None:
        """Receive an evaluation: the content of a line of the run's history.jsonl."""

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Receive the metrics of the best state, or None if the training was interrupted or failed."""


class Tracking:
    """A callback that also notifies trackers. A tracker that fails is dropped, and the training continues."""

    def __init__(self, trackers: Sequence[Tracker], callback: Callable[[TrainingProgress], None]) -> None:
        self._trackers, self._callback = list(trackers), callback

    def __call__(self, progress: TrainingProgress) -> None:
        if progress.evaluated and progress.evaluation is not None:
            self._notify("evaluated", progress.evaluation)
        self._callback(progress)

    @contextlib.contextmanager
    def following(self, settings: Settings, path: Path, resumed: bool) -> Iterator[None]:
        """Notify the trackers of the begin and the end of a training."""
        self._notify("begin", settings.used(), path, read_history(path / HISTORY) if resumed else None)
        metrics = None
        try:
            yield
            best = [evaluation for evaluation in read_history(path / HISTORY) if evaluation["best"]]
            metrics = metrics_of(best[-1]) if best else None
        finally:
            self._notify("end", metrics)

    def _notify(self, event: str, *values: Any) -> None:
        for tracker in list(self._trackers):
            method = getattr(tracker, event, None)  # a tracker need not implement all of them
            try:
                if method is not None:
                    method(*values)
            except Exception as error:  # no failure of a tracker may stop a training
                self._trackers.remove(tracker)
                reason = printable(str(error).partition("\n")[0]) or type(error).__name__
                say(f"fm2: {type(tracker).__name__} failed and is no longer used: {reason}")


def metrics_of(evaluation: Evaluation) -> dict[str, Any]:
    """Return the metrics of the validation rows.

    >>> metrics_of({"epoch": 1.0, "step": 40, "training_loss": 0.5, "best": True, "auc": 0.75})
    {'auc': 0.75}
    """
    return {name: value for name, value in evaluation.items() if name not in _PROGRESS}


def figures(evaluation: Evaluation) -> dict[str, float]:
    """Return the numbers to plot over the steps; their names distinguish training from validation.

    >>> figures({"epoch": 1.0, "step": 40, "training_loss": None, "best": True, "auc": 0.75})
    {'epoch': 1.0, 'validation/auc': 0.75}
    """
    loss = evaluation["training_loss"]
    training = {} if loss is None else {"training/log_loss": loss}
    validation = {f"validation/{name}": value for name, value in metrics_of(evaluation).items()}
    return {"epoch": evaluation["epoch"], **training, **validation}
