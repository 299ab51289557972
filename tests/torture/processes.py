"""Forked children that run a command or a function, and may be killed at a file operation or run out of disk space.

The parent imports everything once and computes nothing, so that a child begins within a millisecond.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COUNT, KILL, FULL = range(3)  # modes of faults.c
MEMORY = 8 << 30
CPU_TIME = 60  # seconds; a child takes a fraction of one
TIMEOUT = 900.0  # seconds


@dataclass(frozen=True)
class Outcome:
    """How a child ended: its exit code, or minus the signal that killed it; its output, and the result it returned."""

    code: int
    output: str
    result: Any = None

    @property
    def last_line(self) -> str:
        """The last line of the output: an error message, if the child failed."""
        return (self.output.strip().splitlines() or [""])[-1]


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def arm(directory: Path, mode: int, at: int) -> None:
    """Count file operations below a directory from now on, and fail at one of them."""
    ctypes.CDLL(None).torture_arm(os.fsencode(directory), mode, ctypes.c_long(at))


def counts() -> dict[str, int]:
    """Return how many file operations were counted, and how many of them need space."""
    library = ctypes.CDLL(None)
    for name in ("torture_operations", "torture_writes"):
        getattr(library, name).restype = ctypes.c_long
    return {"operations": library.torture_operations(), "writes": library.torture_writes()}


def run_command(words: list[str], work: Path, mode: int = COUNT, at: int = 0) -> Outcome:
    """Run ``fm2 WORDS`` in the directory ``work``; the result has the counts of file operations."""

    def command() -> dict[str, int]:
        from fm2.cli.main import main

        arm(work, mode, at)
        code = main(words)
        counted = counts()
        if code:
            raise SystemExit(code)
        return counted

    return run_function(command, work)


def run_function(function: Callable[[], Any], work: Path) -> Outcome:
    """Run a function in a child; it returns something that JSON can store."""
    reader, writer = os.pipe()
    log = work.parent / f"{work.name}.log"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_child(function, work, log, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        hung = not _wait_for_output(pipe.fileno(), pid)
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    output = log.read_text(errors="replace") + ("\nthe child hung and was killed" if hung else "")
    return Outcome(-signal.SIGALRM if hung else code, output, json.loads(text) if text else None)


def _wait_for_output(pipe: int, pid: int) -> bool:
    """Wait until a child writes its result or ends; kill it if it takes too long."""
    if select.select([pipe], [], [], TIMEOUT)[0]:
        return True
    os.kill(pid, signal.SIGKILL)
    return False


def _run_child(function: Callable[[], Any], work: Path, log: Path, writer: int) -> None:
    code = 3
    try:
        if "FM2_TORTURE_NATIVE" not in os.environ:  # sanitizers reserve terabytes
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_TIME, CPU_TIME))
        os.chdir(work)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for standard in (1, 2):
            os.dup2(file, standard)
        result = json.dumps(function()).encode()
        arm(work, COUNT, 0)
        os.write(writer, result)
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Budget:
    """CPU seconds that a part of the campaign may use."""

    def __init__(self, seconds: float) -> None:
        self._end = cpu_seconds() + seconds

    def is_spent(self) -> bool:
        return cpu_seconds() >= self._end
