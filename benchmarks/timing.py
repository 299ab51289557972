"""Timing of tasks in turn, so that all of them see the same machine."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
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


def median_cpu(calls: Sequence[Callable[[], object]], group: int = 1) -> Callable[[], float]:
    """Return a measurement: the median processor time of a call, over groups of calls that are timed together."""
    groups = [calls[first : first + group] for first in range(0, len(calls), group)]

    def run(part: Sequence[Callable[[], object]]) -> None:
        for call in part:
            call()

    return lambda: statistics.median(cpu_seconds(functools.partial(run, part)) / len(part) for part in groups)


def in_turn(
    measurements: Mapping[Key, Callable[[], float]], rounds: int, limit: float = float("inf")
) -> dict[Key, list[float]]:
    """Take every measurement once per round, one after the other; return the results of all rounds.

    No round begins after ``limit`` seconds, except the first one.
    """
    results: dict[Key, list[float]] = {name: [] for name in measurements}
    end = time.monotonic() + limit
    for number in range(rounds):
        if number and time.monotonic() > end:
            print(f"{number} of {rounds} rounds: the machine is too busy for more")
            break
        for name, measure in measurements.items():
            results[name].append(measure())
    return results
