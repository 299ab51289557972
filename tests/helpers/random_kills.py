"""Killing processes of a job at moments that are drawn at random."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PAUSE = 0.02  # seconds


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


@dataclass(frozen=True)
class Kill:
    """The kill of a worker: how many seconds after the workers had started, and how far the run was."""

    seconds: float
    phase: str


@contextmanager
def killed_at(
    moments: Iterable[float], workers: Callable[[], list[int]], run: Path, chance: random.Random
) -> Iterator[list[Kill]]:
    """Kill one of the ``workers`` at a moment after they started, again after they were restarted, and so on.

    The list of kills is shorter than that of the moments if the body ends before.
    """
    kills: list[Kill] = []
    ended = threading.Event()

    def kill_all() -> None:
        before: set[int] = set()
        for seconds in moments:
            begun: float | None = None
            while not ended.is_set():
                found = [each for each in workers() if each not in before]
                begun = time.monotonic() if begun is None and found else begun
                if begun is not None and found and time.monotonic() - begun >= seconds:
                    phase = phase_of(run)
                    with suppress(ProcessLookupError):  # else it has just ended
                        os.kill(chance.choice(found), signal.SIGKILL)
                        kills.append(Kill(seconds, phase))
                        before.update(found)
                        break
                time.sleep(PAUSE)

    thread = threading.Thread(target=kill_all, daemon=True)
    thread.start()
    try:
        yield kills
    finally:
        ended.set()
        thread.join()


def phase_of(run: Path) -> str:
    """Return how far a run is, from its files, which may change meanwhile."""
    with suppress(FileNotFoundError):
        return _phase(run)
    return "between two checkpoints"


def _phase(run: Path) -> str:
    if not (run / "settings.toml").is_file():
        return "start-up"
    evaluations = (run / "history.jsonl").read_text().count("\n") if (run / "history.jsonl").is_file() else 0
    directories = sorted(each.name for each in (run / "shards").iterdir()) if (run / "shards").is_dir() else []
    writing = ", writing a checkpoint" if len(directories) > 1 else ""
    return f"after {evaluations} evaluations, {directories[-1] if directories else 'no checkpoint'}{writing}"
