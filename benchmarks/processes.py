"""Work in a process of its own, and the memory that it takes."""

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
    """The peaks of a process in MB: of all that was in memory, mapped files included, and of what is in no file."""

    resident: float
    anonymous: float

    def __or__(self, other: Memory) -> Memory:
        return Memory(max(self.resident, other.resident), max(self.anonymous, other.anonymous))


NOTHING = Memory(0, 0)


def in_fresh_process(work: Callable[[], T]) -> tuple[T, Memory]:
    """Do the work in a new process; give what it returns, and the peaks of its memory."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, work))
    process.start()
    there.close()
    memory = watch_memory(process.pid, here.poll)
    try:
        result: T = here.recv()
    except EOFError:
        raise SystemExit(f"{work} failed; why is said above") from None
    finally:
        process.join()
    return result, memory


def watch_memory(pid: int | None, finished: Callable[[float], bool]) -> Memory:
    """Look at a process from outside until ``finished``, which waits for so many seconds, says that it has ended."""
    memory = NOTHING
    while not finished(SAMPLE_SECONDS):
        memory |= _sample(Path(f"/proc/{pid}/status"))
    return memory


def _answer(there: Connection, work: Callable[[], object]) -> None:
    there.send(work())


def _sample(status: Path) -> Memory:
    """Read the system's figures; a process that has just ended has none."""
    try:
        lines = status.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return NOTHING
    megabytes = {line.split()[0]: int(line.split()[1]) / 1e3 for line in lines if line.endswith("kB")}
    return Memory(megabytes.get("VmHWM:", 0.0), megabytes.get("RssAnon:", 0.0))
