"""Trackers: objects that are notified of the start, every evaluation and the end of a training."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from fm2.artifacts.run_directory import HISTORY, read_history
from fm2.artifacts.settings import Settings
from fm2.errors import printable
from fm2.training.loop import TrainingProgress

Evaluation = dict[str, Any]

# The keys of an evaluation that are not validation metrics.
_NOT_METRICS = ("epoch", "step", "training_loss", "best", "settled")


class Tracker(Protocol):
    """Follows a training. A tracker of your own implements the methods it needs.

    >>> class Printer(Tracker):
    ...     def evaluated(self, evaluation):
    ...         print(f"step {evaluation['step']}: {scalars(evaluation)}")
    >>> evaluation = {"epoch": 0.5, "step": 20, "training_loss": 0.45, "best": True, "settled": False, "auc": 0.75}
    >>> Printer().evaluated(evaluation)
    step 20: {'epoch': 0.5, 'training/log_loss': 0.45, 'validation/auc': 0.75}
    """

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Receive the settings and the run directory of a training that starts.

        ``history`` has the earlier evaluations of a resumed training; it is None for a new one. A training that was
        killed resumes from its last checkpoint and repeats the evaluations after it.
        """

    def evaluated(self, evaluation: Evaluation) -> None:
        """Receive an evaluation: the content of one line of the run's history.jsonl."""

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Receive the best evaluation's metrics, or None if the training was interrupted or failed."""

    def candidate(self, name: str, run: Path) -> Tracker | None:
        """Return a tracker that follows a candidate of the race in the directory ``run``, or None.

        A candidate pauses after each round, which is an end, and resumes. When the race has ended, this tracker
        receives all events of the winner.
        """
        return None


class Tracking:
    """Notifies trackers of one training. A tracker that fails is removed; the training continues."""

    def __init__(self, trackers: Sequence[Tracker], callback: Callable[[TrainingProgress], None]) -> None:
        self._trackers, self._callback = list(trackers), callback
        self._candidates: dict[str, Tracking] = {}

    def __call__(self, progress: TrainingProgress) -> None:
        if progress.evaluated and progress.evaluation is not None:
            self._notify("evaluated", progress.evaluation)
        self._callback(progress)

    def candidate(self, name: str, run: Path, callback: Callable[[TrainingProgress], None]) -> Tracking:
        """Return the tracking of a candidate of the race in the directory ``run``."""
        if name not in self._candidates:
            trackers = [tracker for tracker in self._notify("candidate", name, run) if tracker is not None]
            self._candidates[name] = Tracking(trackers, callback)
        self._candidates[name]._callback = callback
        return self._candidates[name]

    @contextlib.contextmanager
    def following(self, settings: Settings, path: Path, resumed: bool) -> Iterator[None]:
        """Notify the trackers when a training starts, and when it ends."""
        self._notify("begin", settings.used(), path, read_history(path / HISTORY) if resumed else None)
        metrics = None
        try:
            yield
            metrics = _best_metrics(read_history(path / HISTORY))
        finally:
            self._notify("end", metrics)

    def replay(self, settings: dict[str, Any], path: Path) -> None:
        """Notify the trackers of a training that has ended: the winner of a race."""
        history = read_history(path / HISTORY)
        self._notify("begin", settings, path, None)
        for evaluation in history:
            self._notify("evaluated", evaluation)
        self._notify("end", _best_metrics(history))

    def _notify(self, event: str, *arguments: Any) -> list[Any]:
        """Call a method of all trackers that have it; return what they return."""
        results = []
        for tracker in list(self._trackers):
            method = getattr(tracker, event, None)  # a tracker need not implement all events
            try:
                if method is not None:
                    results.append(method(*arguments))
            except Exception as error:  # no failure of a tracker may stop a training
                self._trackers.remove(tracker)
                reason = printable(str(error).partition("\n")[0]) or type(error).__name__
                name = type(tracker).__name__
                print(f"fm2: {name} failed: {reason}; the training continues without it", file=sys.stderr)
        return results


def _best_metrics(history: Sequence[Evaluation]) -> dict[str, Any] | None:
    best = [evaluation for evaluation in history if evaluation["best"]]
    return metrics_of(best[-1]) if best else None


def metrics_of(evaluation: Evaluation) -> dict[str, Any]:
    """Return the validation metrics of an evaluation."""
    return {name: value for name, value in evaluation.items() if name not in _NOT_METRICS}


def scalars(evaluation: Evaluation) -> dict[str, float]:
    """Return the values to plot over the steps, under names that distinguish training from validation.

    >>> scalars({"epoch": 1.0, "step": 40, "training_loss": None, "best": True, "auc": 0.75})
    {'epoch': 1.0, 'validation/auc': 0.75}
    """
    loss = evaluation["training_loss"]
    training = {} if loss is None else {"training/log_loss": loss}
    validation = {f"validation/{name}": value for name, value in metrics_of(evaluation).items()}
    return {"epoch": evaluation["epoch"], **training, **validation}
