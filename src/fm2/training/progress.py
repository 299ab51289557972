"""Progress of a training run: speed, loss and validation scores, and at the end why it stopped."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Self

from fm2.evaluation.metrics import metric_title
from fm2.progress import PlainLines, ProgressBar
from fm2.training.loop import TrainingProgress

BAR_SECONDS = 0.2  # between two updates
SPEED_SECONDS = 1.0  # before that, the speed says nothing


class TrainingDisplay:
    """Shows a progress bar; if standard error is not a terminal, prints a line now and then instead.

    Pass it as ``callback`` to :func:`fm2.train`.
    """

    def __init__(self, terminal: bool | None = None) -> None:
        self._bar, self._lines = ProgressBar("training", terminal, may_end_early=True), PlainLines()
        self._start = self._last_update = time.perf_counter()
        self._report: TrainingProgress | None = None

    def __call__(self, report: TrainingProgress) -> None:
        now = time.perf_counter()
        if self._report is not None and report.stage != self._report.stage:
            self._start = now
        self._report = report
        if self._is_due(now):
            texts = describe(report, now - self._start)
            if self._bar.shown:
                self._show(report, texts)
            else:
                line = "; ".join(text for text in (_position(report, now - self._start), texts[0]) if text)
                self._lines.print(f"training: {line}")

    def _show(self, report: TrainingProgress, texts: list[str]) -> None:
        """Update the bar: it shows how much of the training is done, or in a race of a candidate's round."""
        if report.stage:
            self._bar.update(report.rows - report.begun, report.total - report.begun, texts)
            return
        limit = _count(report.total // report.epoch_rows, "epoch")
        place = f"{report.rows / report.epoch_rows:.1f} of at most {limit}"
        placed = [f"{place}: {text}" if text else place for text in texts]
        self._bar.update(report.rows, report.total, [*placed, texts[-1] or place])

    def _is_due(self, now: float) -> bool:
        """Return whether it is time to update the bar, or to print a line."""
        if not self._bar.shown:
            return self._lines.is_due()
        if now - self._last_update < BAR_SECONDS:
            return False
        self._last_update = now
        return True

    def restart(self, message: str | None = None, ended: str | None = None) -> None:
        """Remove the bar, print a message on standard error, and get ready for another run after ``ended``."""
        self._bar.stop()
        if message is not None:
            print(message, file=sys.stderr, flush=True)
        self._start = self._last_update = time.perf_counter()
        self._lines = PlainLines()
        self._report = None

    @property
    def raced(self) -> bool:
        """Whether the last training was part of a race."""
        return self._report is not None and bool(self._report.stage)

    def summary(self) -> str:
        """Return how long the training took and why it ended."""
        report = self._report
        seconds = time.perf_counter() - self._start
        if report is None:
            return "already finished; nothing left to train"
        if report.begun and report.rows == report.begun:
            setting = "patience" if report.rows < report.total else "epochs"
            return f"already finished ({_reason(report).partition(';')[0]}); raise --{setting} to continue"
        epochs = f"{report.rows / report.epoch_rows:.2f} epochs"
        if report.begun:
            epochs += f" ({report.begun / report.epoch_rows:.2f} before resuming)"
        return f"{epochs} in {seconds:.0f} s ({_speed(report, seconds):,.0f} rows/s); {_reason(report)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Reports:
    """Passes the reports of a training on to a callback and to a display, which is removed at the end.

    ``shown`` is False for no display, and True for a bar. By default there is a display unless there is a callback, and
    it is a bar on a terminal and lines elsewhere.
    """

    def __init__(self, callback: Callable[[TrainingProgress], None] | None, shown: bool | None) -> None:
        shows = callback is None if shown is None else shown
        self._display = TrainingDisplay(terminal=shown) if shows else None
        self._receivers = [receiver for receiver in (callback, self._display) if receiver is not None]

    def __call__(self, report: TrainingProgress) -> None:
        for receiver in self._receivers:
            receiver(report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._display is not None:
            self._display.__exit__(*error)


def describe(report: TrainingProgress, seconds: float) -> list[str]:
    """Format the stage, the speed, the training loss and the latest validation scores, from long to short."""
    training = [f"{_speed(report, seconds):,.0f} rows/s"] if seconds >= SPEED_SECONDS else []
    if not math.isnan(report.loss):
        training.append(f"loss {report.loss:.4f}")
    if not report.evaluation:
        return [_join(report, ", ".join(training)), _join(report, *training[-1:]), *(training[-1:] or [report.stage])]
    metric = report.evaluation[report.metric]
    score = f"validation {metric_title(report.metric)} {metric:.4f}"
    scores = f"validation log loss {report.evaluation['log_loss']:.4f}, AUC {report.evaluation['auc']:.4f}"
    if share := report.evaluation.get("tree_share"):
        scores += f", share of trees {share:.0%}"
    return [
        _join(report, ", ".join(training), scores),
        _join(report, *training[-1:], scores),
        _join(report, scores),
        _join(report, score),
        score,
    ]


def _join(report: TrainingProgress, *parts: str) -> str:
    """Join the stage and the parts of a text that are not empty.

    >>> stage = "candidate 1 of 7, round 1 of 4"
    >>> _join(TrainingProgress(0, 1, 0, 1, 0.5, None, stage=stage), "", "loss 0.5")
    'candidate 1 of 7, round 1 of 4: loss 0.5'
    """
    return ": ".join(text for text in (report.stage, "; ".join(part for part in parts if part)) if text)


def _position(report: TrainingProgress, seconds: float) -> str:
    """Format how much is done and, unless the training is part of a race, how long the rest takes at most."""
    if report.stage:
        return f"epoch {report.rows / report.epoch_rows:.1f}"
    done = f"{report.rows / report.total:.0%}"
    if seconds < SPEED_SECONDS:
        return done
    left = round((report.total - report.rows) / max(_speed(report, seconds), 1e-9))
    return f"{done}, at most {left // 60}:{left % 60:02d} left"


def _reason(report: TrainingProgress) -> str:
    """Return why a training run ended, and how to continue one that was too short."""
    if report.rows < report.total:
        return f"early stopping: no improvement in {_count(report.waited, 'evaluation')}"
    reason = f"reached the maximum of {_count(report.total // report.epoch_rows, 'epoch')}"
    if report.evaluation is None or not report.evaluation["best"]:
        return reason
    unfinished = f"validation {metric_title(report.metric)} was still improving"
    if not report.evaluation.get("settled", True):
        unfinished = "the target sparsity was not reached"
    return f"{reason}; {unfinished}, continue with --resume --epochs N"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _speed(report: TrainingProgress, seconds: float) -> float:
    return (report.rows - report.begun) / max(seconds, 0.1)  # the first step of a resumed run takes no time
