"""Timing of tasks in turn, so that all of them see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def seconds(task: Callable[[], object], calls: int = 1) -> float:
    """Return the mean time of a call."""
    start = time.perf_counter()
    for _ in range(calls):
        task()
    return (time.perf_counter() - start) / calls


def cpu_seconds(task: Callable[[], object]) -> float:
    """Return the processor time of a call in this thread, which depends little on what else the machine does."""
    start = time.thread_time()
    task()
    return time.thread_time() - start


def in_turn(measurements: Mapping[Key, Callable[[], float]], rounds: int) -> dict[Key, list[float]]:
    """Take every measurement once per round, one after the other; return the results of all rounds."""
    results: dict[Key, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            results[name].append(measure())
    return results
