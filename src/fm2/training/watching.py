"""The live line of a training: rows per second, time left, loss, the last validation figures."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from fm2.training.loop import Report

EVERY_SECONDS = 0.2


class Watcher:
    """Writes one line to the terminal, over and over; nothing where standard error is not a terminal."""

    def __init__(self, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._start = self._last = time.perf_counter()
        self._first: int | None = None

    def __call__(self, report: Report) -> None:
        now = time.perf_counter()
        if self._first is None:
            self._first = report.rows
        if not self._shown or now - self._last < EVERY_SECONDS:
            return
        self._last = now
        print("\r\x1b[2K" + describe(report, self._first, now - self._start), end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def describe(report: Report, first: int, seconds: float) -> str:
    """Say how far a training is, in one line.

    >>> describe(Report(rows=5000, total=20000, loss=0.5, evaluation=None), first=0, seconds=2)
    ' 25% 2,500 rows/s, 0:06 left, loss 0.5000'
    """
    speed = (report.rows - first) / max(seconds, 1e-9)
    left = round((report.total - report.rows) / max(speed, 1e-9))
    line = f"{report.rows / report.total:4.0%} {speed:,.0f} rows/s, {left // 60}:{left % 60:02d} left"
    line += f", loss {report.loss:.4f}"
    if report.evaluation:
        line += f"; validation log loss {report.evaluation['log_loss']:.4f}, AUC {report.evaluation['auc']:.4f}"
    return line
