"""Progress: a bar on a terminal, plain lines elsewhere. Only showing a bar imports rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import rich.progress

SHOW_AFTER_SECONDS = 1.0
FIRST_LINE_SECONDS, LINE_SECONDS = 10.0, 30.0  # where standard error is not a terminal
TITLE_WIDTH, BAR_WIDTH, REMAINING_WIDTH = 9, 24, 7


class PlainLines:
    """Lines of progress for a log file: the first one after 10 seconds, then one every 30 seconds."""

    def __init__(self) -> None:
        self._next = time.perf_counter() + FIRST_LINE_SECONDS

    def is_due(self) -> bool:
        """Return whether it is time for a line; the caller then prints it."""
        now = time.perf_counter()
        if now < self._next:
            return False
        self._next = now + LINE_SECONDS
        return True

    @staticmethod
    def print(text: str) -> None:
        """Print a line on standard error."""
        print(f"fm2: {text}", file=sys.stderr, flush=True)


class ProgressBar:
    """A bar with a percentage, a text and the remaining time; invisible if standard error is not a terminal.

    ``may_end_early`` leaves out the remaining time, because the total is only a limit. A narrow terminal shows a
    shorter text, without the bar if need be, so that nothing is cut off.
    Lines that are printed to standard error while the bar is visible appear above it.
    """

    def __init__(self, title: str, shown: bool | None = None, may_end_early: bool = False) -> None:
        self._title, self._remaining = title, not may_end_early
        self.shown = sys.stderr.isatty() if shown is None else shown
        self._bar: rich.progress.Progress | None = None

    def update(self, done: float, total: float, texts: Sequence[str]) -> None:
        """Show the progress with the first of the texts, from long to short, for which there is room."""
        if not self.shown:
            return
        done = min(done, total)
        started = self._bar is not None
        bar = self._bar = self._bar or _make_bar()
        room = bar.console.width - max(len(self._title), TITLE_WIDTH) - len(" 100%  ")
        room -= REMAINING_WIDTH if self._remaining else 0
        text = next((text for text in texts if len(text) <= room), texts[-1])
        bar.columns = _columns(len(text) + 1 + BAR_WIDTH <= room, self._remaining)
        if not started:
            self._task = bar.add_task(self._title, total=total, completed=int(done), text=text)
            bar.start()
        bar.update(self._task, completed=done, total=total, text=text)

    def stop(self) -> None:
        """Remove the bar from the terminal; the next update shows a new one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Progress:
    """Progress of a task that processes rows, or other units, with their number and speed. Short tasks show nothing.

    ``shown`` is False for no progress at all. By default, a terminal shows a bar, and other streams get plain lines.

    >>> with Progress("reading", total=100) as progress:
    ...     progress.update(50, rows=10)
    """

    def __init__(self, title: str, total: int, shown: bool | None = None, unit: str = "rows") -> None:
        self._title, self._total, self._unit = title, total, unit
        self._bar = ProgressBar(title, shown)
        self._lines = PlainLines() if shown is None and not self._bar.shown else None
        self._start = time.perf_counter()

    def update(self, done: int, rows: int) -> None:
        """Report how much of the total is done, and how many rows that is."""
        seconds = time.perf_counter() - self._start
        if seconds >= SHOW_AFTER_SECONDS:
            count, speed = f"{rows:,} {self._unit}", f"{rows / seconds:,.0f} {self._unit}/s"
            self._bar.update(done, self._total, [f"{count}  {speed}", count])
            if self._lines and self._lines.is_due():
                self._lines.print(f"{self._title}: {min(done / max(self._total, 1), 1):.0%}, {count}, {speed}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _make_bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import Progress as Bar

    return Bar(
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # results stay on standard output, also where that is a pipe
    )


def _columns(with_bar: bool, with_remaining: bool) -> tuple[rich.progress.ProgressColumn, ...]:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return (
        TextColumn(f"{{task.description:>{TITLE_WIDTH}}}"),
        *([BarColumn(bar_width=BAR_WIDTH)] if with_bar else []),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        *([TimeRemainingColumn()] if with_remaining else []),
    )
