"""Ratios that have to be reached, and whether they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """A ratio, None if it could not be measured; what it must be at least, or at most; what it is aimed to be."""

    what: str
    ratio: float | None
    least: float | None = None
    most: float | None = None
    aim: float | None = None

    def verdict(self) -> str:
        """Say what is reached."""
        if self.ratio is None:
            return "not measured"
        if (self.least is not None and self.ratio < self.least) or (self.most is not None and self.ratio > self.most):
            return "NOT REACHED"
        if self.aim is None:
            return "reached"
        if self.ratio <= self.aim if self.most is not None else self.ratio >= self.aim:
            return "aim reached"
        return "aim not reached" if self.least is None and self.most is None else "reached, not the aim"


def print_bars(title: str, bars: Iterable[Bar]) -> None:
    """Print a line for each: the ratio, the bar, the aim, the verdict."""
    print(f"\n{title:48}{'ratio':>8}{'bar':>10}{'aim':>8}")
    for bar in bars:
        ratio = "" if bar.ratio is None else f"{bar.ratio:.2f}"
        limit = f"≥ {bar.least:g}" if bar.least is not None else "" if bar.most is None else f"≤ {bar.most:g}"
        aim = "" if bar.aim is None else f"{bar.aim:g}"
        print(f"{bar.what:48}{ratio:>8}{limit:>10}{aim:>8}  {bar.verdict()}")
