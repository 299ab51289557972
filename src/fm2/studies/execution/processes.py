"""Runs in processes of this machine. A process trains one run after the other, since importing torch takes seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from fm2.errors import Fm2Warning
from fm2.studies.execution.jobs import Jobs, LostRun, Results, Watch, Work

STOP_SECONDS = 60.0  # for the step, the evaluation and the checkpoint of a run that is interrupted


class _Process:
    """A process, and the run that it trains, if any."""

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fm2.studies.execution.worker", str(theirs.fileno())],
                env={**os.environ, "FM2_THREADS": str(threads)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in a terminal reaches this process only, which ends the others
            )
        self.connection = Connection(ours.detach())
        self.run: str | None = None

    def start(self, work: Work, name: str, task: Any) -> None:
        """Send a task."""
        self.run = name
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # receive says that the process has ended
            self.connection.send((work, task))

    def receive(self) -> tuple[str, Any]:
        """Return the next message: what it is, and its value. If the process has ended, the run is lost."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):  # OSError: it ended within a message
            code = self._process.wait()
            reason = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return "lost", LostRun(f"{self.run}: its process {reason}; resume=True continues from the last checkpoint")
        return kind, value

    def interrupt(self) -> None:
        """Ask the process to write a checkpoint and to end its run."""
        self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """End the process; nothing that it has written is lost."""
        self.connection.close()
        self._process.kill()
        self._process.wait()


def run_in_processes(
    work: Work, tasks: Mapping[str, Any], jobs: Jobs, watch: Watch, on_start: Callable[[str], None]
) -> Results:
    """Train runs in several processes; see :func:`fm2.studies.execution.jobs.map_runs`."""
    waiting = list(tasks)
    processes: list[_Process] = []

    def start_next(process: _Process) -> None:
        name = waiting.pop(0)
        on_start(name)
        process.start(work, name, tasks[name])

    try:
        for _ in range(min(jobs.count or 1, len(tasks))):
            processes.append(_Process(jobs.threads_per_run))
            start_next(processes[-1])
        while processes:
            for process in _with_messages(processes):
                kind, value = process.receive()
                name = str(process.run)
                if kind == "progress":
                    watch(dataclasses.replace(value, stage=name))
                elif kind == "warning":
                    warnings.warn(value, Fm2Warning, stacklevel=2)
                elif kind == "error":
                    process.run = None
                    raise value
                else:
                    process.run = None
                    if kind == "lost" or not waiting:
                        processes.remove(process)
                        process.end()
                    if kind == "lost" and waiting:
                        processes.append(process := _Process(jobs.threads_per_run))
                    if waiting:
                        start_next(process)
                    yield name, value
    finally:
        _end(processes)


def _with_messages(processes: Sequence[_Process], seconds: float | None = None) -> list[_Process]:
    """Wait for messages; return the processes that sent any, or that have ended."""
    ready = wait([process.connection for process in processes], seconds)
    return [process for process in processes if process.connection in ready]


def _end(processes: Sequence[_Process]) -> None:
    """Let all runs write a checkpoint, then end their processes; another interruption does not wait."""
    try:
        busy = [process for process in processes if process.run is not None]
        for process in busy:
            process.interrupt()
        deadline = time.monotonic() + STOP_SECONDS
        while busy and time.monotonic() < deadline:
            for process in _with_messages(busy, 1.0):
                if process.receive()[0] not in ("progress", "warning"):
                    busy.remove(process)
    finally:
        for process in processes:
            process.end()
