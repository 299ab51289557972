"""How many runs of a study are trained at once, and where."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fm2 import _native
from fm2.cpu import MAX_THREADS
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, suggest
from fm2.ray_cluster import connected
from fm2.training.loop import TrainingProgress

Engine = Literal["local", "ray"]
Watch = Callable[[TrainingProgress], None]
# Trains what a task describes. It is a function of a module, and tasks and results can be pickled.
Work = Callable[[Any, Watch], Any]
Results = Generator[tuple[str, Any], None, None]


class LostRun(Fm2Error):
    """The process of a run was killed, or its machine failed."""


@dataclass(frozen=True)
class Jobs:
    """The number of runs of an ``operation`` at once, and the engine that runs them.

    ``threads`` is the number of threads of a run, 0 for its share of the cores. With Ray, ``count`` is None for as many
    runs as the cluster has cores for, and ``address`` is that of a running cluster.
    """

    operation: str
    count: int | None = None
    engine: Engine = "local"
    address: str | None = None
    threads: int = 0

    def check(self) -> None:
        """Raise an error if the values are invalid or contradict each other."""
        if self.engine not in get_args(Engine):
            raise Fm2Error(
                f"{self.operation}: unknown engine '{self.engine}'; {suggest(self.engine, get_args(Engine))}"
            )
        if self.count is not None and not 1 <= self.count <= MAX_THREADS:
            raise Fm2Error(f"{self.operation}: jobs must be between 1 and {MAX_THREADS}, got {self.count}")
        if self.address is not None and self.engine != "ray":
            raise Fm2Error(f'{self.operation}: address= is that of a Ray cluster; use it with engine="ray"')

    @property
    def is_sequential(self) -> bool:
        """Whether this process trains all runs itself, one after the other."""
        return self.engine == "local" and self.count in (None, 1)

    @property
    def threads_per_run(self) -> int:
        """The number of threads of a run that does not set it: a local one shares the cores with the others."""
        if self.threads:
            return self.threads
        return 1 if self.engine == "ray" else max(_native.default_threads() // (self.count or 1), 1)


def started(jobs: Jobs) -> contextlib.AbstractContextManager[Any]:
    """Start the engine, or connect to it, once for several calls of :func:`map_runs`."""
    if jobs.engine != "ray":
        return contextlib.nullcontext()
    return connected(jobs.operation, jobs.address)


def map_runs(
    work: Work,
    tasks: Mapping[str, Any],
    jobs: Jobs,
    watch: Watch = lambda progress: None,
    on_start: Callable[[str], None] = lambda name: None,
) -> Results:
    """Train what the tasks describe; yield their names and results in the order in which they end.

    ``on_start`` is called with the name of a run before it starts. ``watch`` receives the progress of all runs; with
    several at once, ``stage`` of a report is the name of the run. The result of a run whose process was killed is a
    :class:`LostRun`. If a run raises an exception, or this process is interrupted, all others write a checkpoint and
    end; close the iterator to end them, too.
    """
    if jobs.is_sequential:
        return _one_after_the_other(work, tasks, watch, on_start)
    if jobs.engine == "ray":
        from fm2.studies.execution.ray_tasks import run_on_ray

        return run_on_ray(work, tasks, jobs, watch, on_start)
    from fm2.studies.execution.processes import run_in_processes

    return run_in_processes(work, tasks, jobs, watch, on_start)


def _one_after_the_other(
    work: Work, tasks: Mapping[str, Any], watch: Watch, on_start: Callable[[str], None]
) -> Results:
    for name, task in tasks.items():
        on_start(name)
        yield name, work(task, watch)


def open_once(data: Dataset | Path) -> Dataset:
    """Return a dataset; a process that trains many runs opens and verifies it once."""
    return _opened(data) if isinstance(data, Path) else data


@functools.lru_cache(maxsize=1)
def _opened(path: Path) -> Dataset:
    return Dataset.open(path)
