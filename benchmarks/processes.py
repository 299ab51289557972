"""Run a task in a fresh process and measure its peak memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

SAMPLE_SECONDS = 0.02

T = TypeVar("T")


@dataclass(frozen=True)
class Memory:
    """Peak memory of a process in MB: resident, with mapped files, and anonymous, without them."""

    resident: float
    anonymous: float

    def __or__(self, other: Memory) -> Memory:
        return Memory(max(self.resident, other.resident), max(self.anonymous, other.anonymous))


NOTHING = Memory(0, 0)


def in_fresh_process(task: Callable[[], T]) -> tuple[T, Memory]:
    """Run a task in a new process; return its result and its peak memory."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, task))
    process.start()
    there.close()
    memory = watch_memory(process.pid, here.poll)
    try:
        result: T = here.recv()
    except EOFError:
        raise SystemExit(f"{task} failed; see its output above") from None
    finally:
        process.join()
    return result, memory


def watch_memory(pid: int | None, finished: Callable[[float], bool]) -> Memory:
    """Sample the memory of a process until ``finished``, which waits for some seconds, returns True."""
    memory = NOTHING
    while not finished(SAMPLE_SECONDS):
        memory |= _sample(Path(f"/proc/{pid}/status"))
    return memory


def _answer(there: Connection, task: Callable[[], object]) -> None:
    there.send(task())


def _sample(status: Path) -> Memory:
    """Read the memory of a process; zero if it has just ended."""
    try:
        lines = status.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return NOTHING
    megabytes = {line.split()[0]: int(line.split()[1]) / 1e3 for line in lines if line.endswith("kB")}
    return Memory(megabytes.get("VmHWM:", 0.0), megabytes.get("RssAnon:", 0.0))
