"""Progress bars on the terminal. Importing this module does not import rich; showing a bar does."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import rich.progress

SHOW_AFTER_SECONDS = 1.0


class ProgressBar:
    """A bar with a percentage, a text and the remaining time; invisible if standard error is not a terminal.

    Lines that are printed to standard error while the bar is visible appear above it.
    """

    def __init__(self, title: str, shown: bool | None = None) -> None:
        self._title = title
        self.shown = sys.stderr.isatty() if shown is None else shown
        self._bar: rich.progress.Progress | None = None

    def update(self, done: float, total: float, text: str) -> None:
        """Show the progress."""
        if not self.shown:
            return
        done = min(done, total)
        if self._bar is None:
            self._bar = _make_bar()
            self._task = self._bar.add_task(self._title, total=total, completed=int(done), text=text)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, text=text)

    def stop(self) -> None:
        """Remove the bar from the terminal; the next update shows a new one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Progress:
    """Progress of a task that processes rows, or other units, with their number and speed. Short tasks show nothing.

    >>> with Progress("reading", total=100) as progress:
    ...     progress.update(50, rows=10)
    """

    def __init__(self, title: str, total: int, shown: bool | None = None, unit: str = "rows") -> None:
        self._total = total
        self._unit = unit
        self._bar = ProgressBar(title, shown)
        self._start = time.perf_counter()

    def update(self, done: int, rows: int) -> None:
        """Report how much of the total is done, and how many rows that is."""
        seconds = time.perf_counter() - self._start
        if seconds >= SHOW_AFTER_SECONDS:
            self._bar.update(done, self._total, f"{rows:,} {self._unit}  {rows / seconds:,.0f} {self._unit}/s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _make_bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description:>9}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # results stay on standard output, also where that is a pipe
    )
