"""Processes with little memory."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MEGABYTE = 1 << 20


def limit_memory(megabytes: float) -> None:
    """Let this process allocate so much more memory than it has now; files that are mapped do not count."""
    limit = int((_megabytes("VmData") + megabytes) * MEGABYTE)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Return a function with the most megabytes that the body had allocated; mapped files count if it changed them."""
    before, peak, ended = _megabytes("RssAnon"), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.002):
            peak = max(peak, _megabytes("RssAnon") - before)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: peak
    finally:
        ended.set()
        thread.join()


def _megabytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024
