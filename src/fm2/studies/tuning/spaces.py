"""What tuning tries: for each setting a range or some values around the model's default, in one table."""

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
class Between:
    """Any number from ``low`` to ``high``, by its logarithm if it is ``log``; a whole one where both are whole."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is a range of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, random: np.random.Generator) -> Any:
        """Draw a number."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        drawn = random.uniform(low, high)
        return self.tidied(float(np.exp(drawn) if self.log else drawn))

    def tidied(self, value: float) -> Any:
        """Round a number to three digits, or to a thousandth of the range: nobody can tell more apart.

        >>> Between(0.001, 0.1, log=True).tidied(0.0123456), Between(0.99, 0.9999).tidied(0.9987654)
        (0.0123, 0.99877)
        """
        places = 3 - math.ceil(math.log10(self.high - self.low)) if self.high > self.low else 15
        return self.suggest(tidy(value) if self.log else round(value, places))

    def suggest(self, value: Any) -> Any:
        """Give the number within the range that is nearest to another."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.whole else float(inside)


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    values: tuple[Any, ...]

    def draw(self, random: np.random.Generator) -> Any:
        """Draw a value, each as likely as the others."""
        return self.values[random.integers(len(self.values))]

    def tidied(self, value: Any) -> Any:
        """Give the value as it is."""
        return value

    def suggest(self, value: Any) -> Any:
        """Give the value itself if it is there, else the one that is nearest, else the first."""
        if value in self.values:
            return value
        numbers = isinstance(value, int | float) and all(isinstance(own, int | float) for own in self.values)
        return min(self.values, key=lambda own: abs(own - value)) if numbers else self.values[0]


Choice = Between | OneOf
Space = dict[str, Choice]


def tidy(value: float) -> float:
    """Round a number to three digits.

    >>> tidy(0.00123456)
    0.00123
    """
    return float(f"{value:.3g}")


def _within(factor: float, *if_zero: float) -> Callable[[Any], Choice | None]:
    """Make ranges that reach so many times below and above the default; there is no such range around zero."""

    def around(value: float) -> Choice | None:
        if value:
            return Between(tidy(value / factor), tidy(value * factor), log=True)
        return OneOf((0.0, *if_zero)) if if_zero else None

    return around


def _up_to(most: float) -> Callable[[Any], Choice | None]:
    return lambda value: Between(0.0, max(most, value))


def _twice(value: float) -> Choice | None:
    return Between(0.0, tidy(2 * value)) if value else None


def _times(*factors: float) -> Callable[[Any], Choice | None]:
    """Make lists of multiples of a whole number, or of several."""

    def multiples(value: Any) -> Choice | None:
        if isinstance(value, list | tuple):
            several = [[max(1, round(part * factor)) for part in value] for factor in factors]
            return OneOf(tuple(several)) if value else None
        return OneOf(tuple(sorted({max(1, round(value * factor)) for factor in factors})))

    return multiples


def _among(*values: Any) -> Callable[[Any], Choice | None]:
    return lambda value: OneOf(values if value in values else (value, *values))


def _averages(value: float) -> Choice | None:
    return OneOf(tuple(sorted({0.99, 0.998, 0.999, value}))) if value else None


# By a setting's name, what makes the choice around a default of it. The widths are those of the search that found the
# defaults; only dim, hidden and batch_size are what they are for the sake of time as well.
TABLE: Mapping[str, Callable[[Any], Choice | None]] = {
    "dim": _times(0.5, 1, 2),
    "hidden": _times(0.5, 1, 2),
    "linear": _among(*get_args(Linear)),
    "learning_rate": _within(4),
    "dense_learning_rate": _within(4),
    "batch_size": _times(0.5, 1, 2),
    "l2": _within(5, 1e-3, 1e-2, 0.1),
    "dropout": _up_to(0.2),
    "field_dropout": _twice,
    "network_dropout": _up_to(0.5),
    "weight_decay": _among(0.0, 1e-4, 1e-3, 1e-2),
    "ema_decay": _averages,
    "initial_accumulator": _within(10),
    "embedding_std": _within(3),
    "matrix_std": _within(3),
}
# And where the rates fall to zero over the epochs, so that their number decides.
FALLING: Mapping[str, Callable[[Any], Choice | None]] = {
    "schedule": _among(*get_args(Schedule)),
    "epochs": _times(0.75, 1, 1.5),
}
# FTRL counts both in gradients, not in shares of the weights.
FTRL: Mapping[str, Callable[[Any], Choice | None]] = {"l1": _among(0.0, 0.1, 0.5, 1.0), "l2": _among(0.0, 10.0, 100.0)}


def space_around(settings: Settings) -> Space:
    """Give what is tried around some settings, such as a model's defaults.

    >>> space_around(Settings.of("ffm"))["learning_rate"]
    Between(low=0.005, high=0.08, log=True)
    >>> space_around(Settings.of("ffm"))["dim"]
    OneOf(values=(2, 4, 8))
    """
    table = {**TABLE, **(FALLING if settings.schedule != "constant" else {})}
    table |= FTRL if settings.optimizer == "ftrl" else {}
    values, untuned = settings.used(), get_spec(settings.model).untuned
    found = {name: make(values[name]) for name, make in table.items() if name in values and name not in untuned}
    return {name: choice for name, choice in found.items() if choice is not None}


def near(space: Space, start: Mapping[str, Any], random: np.random.Generator, share: float = 0.25) -> dict[str, Any]:
    """Draw settings near others: each is drawn anew with this probability, and one of them in any case.

    >>> space = {"dim": OneOf((4, 8)), "l2": Between(0.01, 0.1, log=True)}
    >>> near(space, {"dim": 4, "l2": 0.05}, np.random.default_rng(0))
    {'dim': 4, 'l2': 0.0104}
    """
    names = list(space)
    sure = names[random.integers(len(names))]
    anew = {name: random.random() < share or name == sure for name in names}
    return {name: choice.draw(random) if anew[name] else start[name] for name, choice in space.items()}
