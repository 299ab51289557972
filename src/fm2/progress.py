"""What a person sees while something long runs: one line with rows, rows per second and the time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

SHOW_AFTER_SECONDS = 1.0


class Progress:
    """One line on the terminal per phase of a task; nothing where standard error is not a terminal.

    >>> with Progress("reading", total=100) as progress:
    ...     progress.update(50, rows=10)
    """

    def __init__(self, title: str, total: int, shown: bool | None = None) -> None:
        self._title, self._total = title, total
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._start = time.perf_counter()
        self._bar: Any = None

    def update(self, done: int, rows: int) -> None:
        """Tell how much of the total is done, and how many rows that is."""
        elapsed = time.perf_counter() - self._start
        if not self._shown or elapsed < SHOW_AFTER_SECONDS:
            return
        if self._bar is None:
            self._bar = _make_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total, rows="", speed="")
        self._bar.update(
            self._task, completed=min(done, self._total), rows=f"{rows:,} rows", speed=f"{rows / elapsed:,.0f} rows/s"
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description:>9}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]}"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
