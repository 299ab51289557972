"""Solving an equation in one unknown."""

from __future__ import annotations

from collections.abc import Callable


def solve(increasing: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Find where an increasing function reaches the target, by bisection.

    >>> round(solve(lambda x: x * x, 2, 0, 2), 6)
    1.414214
    """
    for _ in range(32):
        middle = (low + high) / 2
        if increasing(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2
