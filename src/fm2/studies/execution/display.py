"""The progress of several runs that are trained at once."""

from __future__ import annotations

import time

from fm2.training.loop import TrainingProgress
from fm2.training.progress import TrainingDisplay


class RunsDisplay(TrainingDisplay):
    """Shows how far each run is; the ``stage`` of a report is the name of its run.

    >>> display = RunsDisplay(terminal=False)
    >>> display(TrainingProgress(500, 2000, 0, 1000, 0.4, None, stage="fm-0"))
    >>> display(TrainingProgress(50, 1000, 0, 1000, 0.5, None, stage="fmfm-0"))
    >>> display.text()
    'fm-0 25%, fmfm-0 5%'
    >>> display.restart(ended="fm-0")
    >>> display.text()
    'fmfm-0 5%'
    """

    def __init__(self, terminal: bool | None = None) -> None:
        super().__init__(terminal)
        self._running: dict[str, TrainingProgress] = {}

    def __call__(self, report: TrainingProgress) -> None:
        self._running[report.stage] = report
        if not self._is_due(time.perf_counter()):
            return
        if self._bar.shown:
            done, total = (sum(getattr(each, name) for each in self._running.values()) for name in ("rows", "total"))
            self._bar.update(done, total, [self.text(), f"{len(self._running)} runs"])
        else:
            self._lines.print(f"training: {self.text()}")

    def text(self) -> str:
        """Return the share of each run that is done at most; early stopping may end it before."""
        return ", ".join(f"{name} {each.rows / each.total:.0%}" for name, each in self._running.items())

    def restart(self, message: str | None = None, ended: str | None = None) -> None:
        """Remove the bar, print a message on standard error, and forget the run that has ended."""
        super().restart(message)
        self._running.pop(ended or "", None)
