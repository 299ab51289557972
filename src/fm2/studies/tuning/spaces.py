"""Search spaces: for every setting, a range or a list of values around the model's default."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from fm2.artifacts.settings import Settings
from fm2.models.choices import Linear, Schedule
from fm2.models.registry import get_spec


@dataclass(frozen=True)
class Range:
    """All numbers from ``low`` to ``high``, on a log scale if ``log``; integers if both ends are integers."""

    low: float
    high: float
    log: bool = False

    @property
    def integer(self) -> bool:
        """Whether this is a range of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, random: np.random.Generator) -> Any:
        """Draw a number."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        drawn = random.uniform(low, high)
        return self.rounded(float(np.exp(drawn) if self.log else drawn))

    def rounded(self, value: float) -> Any:
        """Round a number to three digits, or to a thousandth of the range; finer differences do not matter.

        >>> Range(0.001, 0.1, log=True).rounded(0.0123456), Range(0.99, 0.9999).rounded(0.9987654)
        (0.0123, 0.99877)
        """
        digits = 3 - math.ceil(math.log10(self.high - self.low)) if self.high > self.low else 15
        return self.nearest(three_digits(value) if self.log else round(value, digits))

    def nearest(self, value: Any) -> Any:
        """Return the number in the range that is nearest to a value."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)


@dataclass(frozen=True)
class Choices:
    """A list of values."""

    values: tuple[Any, ...]

    def draw(self, random: np.random.Generator) -> Any:
        """Draw a value uniformly."""
        return self.values[random.integers(len(self.values))]

    def rounded(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value

    def nearest(self, value: Any) -> Any:
        """Return the value if it is in the list, else the nearest number, else the first value."""
        if value in self.values:
            return value
        numeric = isinstance(value, int | float) and all(isinstance(each, int | float) for each in self.values)
        return min(self.values, key=lambda each: abs(each - value)) if numeric else self.values[0]


Candidates = Range | Choices
Space = dict[str, Candidates]
MakeCandidates = Callable[[Any], Candidates | None]


def three_digits(value: float) -> float:
    """Round a number to three significant digits."""
    return float(f"{value:.3g}")


def _within(factor: float, *if_zero: float) -> MakeCandidates:
    """Search from default / factor to default * factor. For a default of 0, search 0 and ``if_zero``."""

    def around(default: float) -> Candidates | None:
        if default:
            return Range(three_digits(default / factor), three_digits(default * factor), log=True)
        return Choices((0.0, *if_zero)) if if_zero else None

    return around


def _up_to(most: float) -> MakeCandidates:
    return lambda default: Range(0.0, max(most, default))


def _up_to_twice(default: float) -> Candidates | None:
    return Range(0.0, three_digits(2 * default)) if default else None


def _times(*factors: float) -> MakeCandidates:
    """Search multiples of an integer, or of a list of integers."""

    def multiples(default: Any) -> Candidates | None:
        if isinstance(default, list | tuple):
            lists = [[max(1, round(part * factor)) for part in default] for factor in factors]
            return Choices(tuple(lists)) if default else None
        return Choices(tuple(sorted({max(1, round(default * factor)) for factor in factors})))

    return multiples


def _among(*values: Any) -> MakeCandidates:
    return lambda default: Choices(values if default in values else (default, *values))


def _decays(default: float) -> Candidates | None:
    return Choices(tuple(sorted({0.99, 0.998, 0.999, default}))) if default else None


# How to search around the default of each setting. The widths are those of the search that found the defaults; dim,
# hidden and batch_size are narrower to save time.
SEARCHED: Mapping[str, MakeCandidates] = {
    "dim": _times(0.5, 1, 2),
    "hidden": _times(0.5, 1, 2),
    "linear": _among(*get_args(Linear)),
    "learning_rate": _within(4),
    "dense_learning_rate": _within(4),
    "batch_size": _times(0.5, 1, 2),
    "l2": _within(5, 1e-3, 1e-2, 0.1),
    "linear_l2_scale": _within(5),
    "dropout": _up_to(0.2),
    "field_dropout": _up_to_twice,
    "network_dropout": _up_to(0.5),
    "weight_decay": _among(0.0, 1e-4, 1e-3, 1e-2),
    "ema_decay": _decays,
    "initial_accumulator": _within(10),
    "embedding_std": _within(3),
    "linear_std": _within(3),
    "matrix_std": _within(3),
}
# With a schedule, learning rates fall to zero at the last epoch, so the number of epochs matters too.
SEARCHED_WITH_SCHEDULE: Mapping[str, MakeCandidates] = {
    "schedule": _among(*get_args(Schedule)),
    "epochs": _times(0.75, 1, 1.5),
}
# FTRL's penalties are in units of gradients, not relative to the weights.
SEARCHED_WITH_FTRL: Mapping[str, MakeCandidates] = {
    "l1": _among(0.0, 0.1, 0.5, 1.0),
    "l2": _among(0.0, 10.0, 100.0),
}


def space_around(settings: Settings) -> Space:
    """Return the search space around settings, such as a model's defaults.

    >>> space_around(Settings.of("ffm"))["learning_rate"]
    Range(low=0.005, high=0.08, log=True)
    >>> space_around(Settings.of("ffm"))["dim"]
    Choices(values=(2, 4, 8))
    """
    searched = {**SEARCHED, **(SEARCHED_WITH_SCHEDULE if settings.schedule != "constant" else {})}
    searched |= SEARCHED_WITH_FTRL if settings.optimizer == "ftrl" else {}
    values, untuned = settings.used(), get_spec(settings.model).untuned
    space: Space = {}
    for name, make_candidates in searched.items():
        candidates = make_candidates(values[name]) if name in values and name not in untuned else None
        if candidates is not None:
            space[name] = candidates
    return space


def draw_near(
    space: Space, start: Mapping[str, Any], random: np.random.Generator, share: float = 0.25
) -> dict[str, Any]:
    """Draw settings near ``start``: each changes with probability ``share``, and at least one does.

    >>> space = {"dim": Choices((4, 8)), "l2": Range(0.01, 0.1, log=True)}
    >>> draw_near(space, {"dim": 4, "l2": 0.05}, np.random.default_rng(0))
    {'dim': 4, 'l2': 0.0104}
    """
    names = list(space)
    always = names[random.integers(len(names))]
    changes = {name: random.random() < share or name == always for name in names}
    return {name: each.draw(random) if changes[name] else start[name] for name, each in space.items()}
