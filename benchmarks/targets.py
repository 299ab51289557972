"""Ratios with a required limit and a goal, and whether they are reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A ratio (None if it was not measured), the limit it has to reach, and its goal."""

    title: str
    ratio: float | None
    at_least: float | None = None
    at_most: float | None = None
    goal: float | None = None

    def verdict(self) -> str:
        """Return whether the limit and the goal are reached."""
        if self.ratio is None:
            return "not measured"
        too_low = self.at_least is not None and self.ratio < self.at_least
        too_high = self.at_most is not None and self.ratio > self.at_most
        if too_low or too_high:
            return "MISSED"
        if self.goal is None:
            return "" if self.at_least is None and self.at_most is None else "ok"
        if self.ratio <= self.goal if self.at_most is not None else self.ratio >= self.goal:
            return "goal reached"
        return "goal missed" if self.at_least is None and self.at_most is None else "ok, goal missed"


def print_targets(title: str, targets: Iterable[Target]) -> None:
    """Print a line for each target: ratio, limit, goal and verdict."""
    print(f"\n{title:48}{'ratio':>8}{'limit':>10}{'goal':>8}")
    for target in targets:
        ratio = "" if target.ratio is None else f"{target.ratio:.2f}"
        limit = f"≥ {target.at_least:g}" if target.at_least is not None else ""
        limit = f"≤ {target.at_most:g}" if target.at_most is not None else limit
        goal = "" if target.goal is None else f"{target.goal:g}"
        print(f"{target.title:48}{ratio:>8}{limit:>10}{goal:>8}  {target.verdict()}")
