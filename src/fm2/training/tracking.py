"""Those who follow a training from outside: they are told how it begins, every evaluation, and how it ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from fm2.artifacts.settings import Settings
from fm2.errors import printable
from fm2.training.loop import Report
from fm2.training.run import HISTORY, read_history

Evaluation = dict[str, Any]

# What an evaluation tells beside the metrics of the validation rows.
_PROGRESS = ("epoch", "step", "training_loss", "best", "settled")


class Tracker(Protocol):
    """Follows a training: a class of your own has those of these methods that it needs.

    >>> class Printer(Tracker):
    ...     def evaluated(self, evaluation):
    ...         print(f"step {evaluation['step']}: {figures(evaluation)}")
    >>> found = {"epoch": 0.5, "step": 20, "training_loss": 0.45, "best": True, "settled": False, "auc": 0.75}
    >>> Printer().evaluated(found)
    step 20: {'epoch': 0.5, 'training/log_loss': 0.45, 'validation/auc': 0.75}
    """

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Hear of a training's settings and directory, and if it is resumed, of the evaluations that it goes on from.

        ``history`` is None for a new training. One that was killed goes back to its last checkpoint: what a tracker
        heard of later evaluations it will hear again.
        """

    def evaluated(self, evaluation: Evaluation) -> None:
        """Hear of an evaluation: what a line of the run's history.jsonl holds."""

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Hear of the best state's metrics, or None if the training was interrupted or failed."""


class Tracking:
    """Tells trackers about one training. One that fails is left out from then on; the training goes on."""

    def __init__(self, trackers: Sequence[Tracker], watch: Callable[[Report], None]) -> None:
        self._trackers, self._watch = list(trackers), watch

    def __call__(self, report: Report) -> None:
        if report.evaluated and report.evaluation is not None:
            self._tell("evaluated", report.evaluation)
        self._watch(report)

    @contextlib.contextmanager
    def following(self, settings: Settings, path: Path, resumed: bool) -> Iterator[None]:
        """Tell that a training begins, and at the end how it went."""
        self._tell("begin", settings.used(), path, read_history(path / HISTORY) if resumed else None)
        metrics = None
        try:
            yield
            best = [evaluation for evaluation in read_history(path / HISTORY) if evaluation["best"]]
            metrics = metrics_of(best[-1]) if best else None
        finally:
            self._tell("end", metrics)

    def _tell(self, event: str, *what: Any) -> None:
        for tracker in list(self._trackers):
            hear = getattr(tracker, event, None)  # a class of one's own need not have all of them
            try:
                if hear is not None:
                    hear(*what)
            except Exception as failed:  # whatever it is, it is not worth a training
                self._trackers.remove(tracker)
                reason = printable(str(failed).partition("\n")[0]) or type(failed).__name__
                name = type(tracker).__name__
                print(f"fm2: {name} tracks no more: {reason}; the training goes on without it", file=sys.stderr)


def metrics_of(evaluation: Evaluation) -> dict[str, Any]:
    """Give the metrics of the validation rows.

    >>> metrics_of({"epoch": 1.0, "step": 40, "training_loss": 0.5, "best": True, "auc": 0.75})
    {'auc': 0.75}
    """
    return {name: value for name, value in evaluation.items() if name not in _PROGRESS}


def figures(evaluation: Evaluation) -> dict[str, float]:
    """Give what there is to draw over the steps, by names that tell training from validation.

    >>> figures({"epoch": 1.0, "step": 40, "training_loss": None, "best": True, "auc": 0.75})
    {'epoch': 1.0, 'validation/auc': 0.75}
    """
    loss = evaluation["training_loss"]
    training = {} if loss is None else {"training/log_loss": loss}
    validation = {f"validation/{name}": value for name, value in metrics_of(evaluation).items()}
    return {"epoch": evaluation["epoch"], **training, **validation}
