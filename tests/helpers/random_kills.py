"""Killing one process of a job at a moment that is drawn at random."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PAUSE = 0.005  # seconds


def descendants(root: int) -> list[int]:
    """Return the processes that a process started, directly or not."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        children.setdefault(parent, []).append(int(status.parent.name))
    found, waiting = [], [root]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return sorted(found)


def command_of(process: int) -> str:
    """Return the command line of a process; an empty text if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@dataclass
class Kill:
    """The kill of a worker: after how many seconds, how far the run was, and which process it was."""

    seconds: float
    phase: str = ""
    process: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def kill_at(seconds: float, workers: Callable[[], list[int]], run: Path, chance: random.Random) -> Iterator[Kill]:
    """Kill one of the ``workers`` so many seconds after the first of them started, unless the body ends before."""
    kill = Kill(seconds)

    def wait_and_kill() -> None:
        begun: float | None = None
        while not kill.ended.is_set():
            found = workers()
            begun = time.monotonic() if begun is None and found else begun
            if begun is not None and found and time.monotonic() - begun >= seconds:
                phase, process = phase_of(run), chance.choice(found)
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kill.phase, kill.process = phase, process
                return
            time.sleep(PAUSE)

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    try:
        yield kill
    finally:
        kill.ended.set()
        thread.join()


def phase_of(run: Path) -> str:
    """Return how far a run is, from its files."""
    if not (run / "settings.toml").is_file():
        return "start-up"
    evaluations = (run / "history.jsonl").read_text().count("\n") if (run / "history.jsonl").is_file() else 0
    directories = sorted(each.name for each in (run / "shards").iterdir()) if (run / "shards").is_dir() else []
    writing = ", writing a checkpoint" if len(directories) > 1 else ""
    return f"after {evaluations} evaluations, {directories[-1] if directories else 'no checkpoint'}{writing}"
