"""Prepare a log in the tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fm2.data import part_tasks
from fm2.data.engine import Reading
from fm2.data.part_rows import PartFiles
from fm2.data.parts_engine import PartsEngine
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.ray_cluster import connected, count_tasks, repeat_warnings, with_warnings

MOST_SHARDS = 64
CANCELED_SECONDS = 10.0  # to wait for the end of tasks after one has failed
TITLES = {part_tasks.read_part: "reading", part_tasks.count_part: "counting", part_tasks.write_part: "writing"}


@contextlib.contextmanager
def ray_engine(address: str | None, reading: Reading, files: PartFiles, directory: Path) -> Iterator[PartsEngine]:
    """Connect to a Ray cluster, or start one on this machine; yield an engine whose passes are tasks there."""
    with connected("prepare", address) as ray:
        threads = reading.threads or 1
        tasks = RayTasks(ray, threads, directory, reading.progress)
        shards = min(count_tasks("prepare", ray, threads), MOST_SHARDS)
        reading = dataclasses.replace(reading, threads=threads)
        with contextlib.closing(PartsEngine(reading, files, directory, tasks.map, shards)) as engine:
            yield engine


class RayTasks:
    """Calls functions in tasks that each need so many CPUs. ``directory`` is where they write."""

    def __init__(self, ray: Any, cpus: int, directory: Path, show_progress: bool | None) -> None:
        self._ray, self._show_progress = ray, show_progress
        self._place = Path.cwd(), directory
        self._call = ray.remote(num_cpus=cpus)(_call)
        self._shown: set[str] = set()  # warnings

    def map(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        arguments: Sequence[Sequence[Any]],
        names: Sequence[str],
    ) -> list[Any]:
        """Return the results of a function, called with each of the arguments after the shared ones.

        The first error cancels all other tasks.
        """
        sent = [self._ray.put(value) for value in shared]
        pending = {
            self._call.remote(self._place, function, name, *sent, *each): number
            for number, (each, name) in enumerate(zip(arguments, names, strict=True))
        }
        results: list[Any] = [None] * len(names)
        title = TITLES.get(function, "preparing")
        try:
            with Progress(title, len(names), self._show_progress, unit="parts") as progress:
                while pending:
                    for done in self._ray.wait(list(pending))[0]:
                        results[pending[done]] = self._result(done, names[pending[done]])
                        del pending[done]
                        progress.update(len(names) - len(pending), len(names) - len(pending))
        except BaseException:
            for task in pending:
                self._ray.cancel(task)
            if pending:  # Ray refuses to wait for nothing
                self._ray.wait(list(pending), num_returns=len(pending), timeout=CANCELED_SECONDS)
            raise
        return results

    def _result(self, task: Any, name: str) -> Any:
        try:
            result, warned = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Fm2Error):
                raise Fm2Error(str(error.cause)) from error
            raise
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            raise Fm2Error(f"prepare: the Ray task for {name} failed: {reason}") from error
        repeat_warnings(warned, self._shown)
        return result


def _call(place: tuple[Path, Path], function: Callable[..., Any], name: str, *arguments: Any) -> tuple[Any, list[str]]:
    """Call a function in a task; return its result and its warnings. Errors name the file that it processes."""
    current, directory = place
    with contextlib.suppress(OSError):
        os.chdir(current)  # relative paths are the caller's
    if not directory.is_dir():
        raise Fm2Error(
            f"prepare: {socket.gethostname()} cannot access {directory.parent}; with a Ray cluster, out= must be in a "
            "directory that all of its machines share"
        )
    try:
        return with_warnings(function, *arguments)
    except OSError as error:
        raise Fm2Error(f"prepare: {name}: {error.strerror or error}") from error
