"""The live line of a training: rows per second, time left, loss, the last validation figures."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from fm2.training.loop import TrainingProgress

EVERY_SECONDS, EVERY_SECONDS_IN_A_FILE = 0.2, 30.0
CLEAR = "\r\x1b[2K"


def say(text: str) -> None:
    """Write a line to standard error, in place of a live line that may stand there."""
    print(f"{CLEAR if sys.stderr.isatty() else ''}{text}", file=sys.stderr, flush=True)


class ProgressLine:
    """Writes one line to the terminal, over and over; where standard error is a file, a new line now and then."""

    def __init__(self, terminal: bool | None = None) -> None:
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._start = self._last = time.perf_counter()
        self._report: TrainingProgress | None = None

    def __call__(self, report: TrainingProgress) -> None:
        now, self._report = time.perf_counter(), report
        if now - self._last < (EVERY_SECONDS if self._terminal else EVERY_SECONDS_IN_A_FILE):
            return
        self._last = now
        line = describe(report, now - self._start)
        begin, end = (CLEAR, "") if self._terminal else ("", "\n")
        print(begin + line, end=end, file=sys.stderr, flush=True)

    def restart(self) -> None:
        """Begin to watch another training."""
        self._start = self._last = time.perf_counter()
        self._report = None

    def closing(self) -> str:
        """Say how long the training was and why it ended."""
        report, seconds = self._report, time.perf_counter() - self._start
        if report is None:
            return "there was nothing left to train"
        epochs, before = (rows / report.epoch_rows for rows in (report.rows, report.begun))
        done = f"{epochs:.2f} epochs" + (f", {before:.2f} of them before" if before else "")
        reason = "stopped, for it got no better"
        if report.rows == report.total:
            reason = f"all epochs done{_unfinished(report.evaluation)}"
        return f"{done}, in {seconds:.0f} s ({_speed(report, seconds):,.0f} rows/s); {reason}"

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the line away."""
        if self._terminal:
            print(CLEAR, end="", file=sys.stderr, flush=True)


def _unfinished(evaluation: Mapping[str, Any] | None) -> str:
    """Say what the last evaluation tells of a training that had no more epochs."""
    if evaluation is None or not evaluation["best"]:
        return ""
    settled = evaluation.get("settled", True)
    reason = "still getting better" if settled else "not yet as sparse as it was asked to become"
    return f", and {reason}: --resume with more --epochs"


def describe(report: TrainingProgress, seconds: float) -> str:
    """Say how far a training is, in one line.

    >>> report = TrainingProgress(rows=5000, total=20000, begun=0, epoch_rows=10000, loss=0.5, evaluation=None)
    >>> describe(report, seconds=2)
    ' 25% 2,500 rows/s, at most 0:06 left, loss 0.5000'
    """
    speed = _speed(report, seconds)
    left = round((report.total - report.rows) / max(speed, 1e-9))
    line = f"{report.rows / report.total:4.0%} {speed:,.0f} rows/s, at most {left // 60}:{left % 60:02d} left"
    if not math.isnan(report.loss):
        line += f", loss {report.loss:.4f}"
    if report.evaluation:
        line += f"; validation log loss {report.evaluation['log_loss']:.4f}, AUC {report.evaluation['auc']:.4f}"
    return line


def _speed(report: TrainingProgress, seconds: float) -> float:
    return (report.rows - report.begun) / max(seconds, 1e-9)
