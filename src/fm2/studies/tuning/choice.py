"""What a search is to try: what the model's table says, or a person: settings that are fixed, a space of their own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fm2.artifacts.settings import Settings
from fm2.errors import Fm2Error
from fm2.models.choices import Metric
from fm2.studies.tuning.spaces import Between, Choice, OneOf, Space, space_around

# What is the same for all trials, and said in other ways.
OWN = ("model", "metric", "seed", "threads", "device")


@dataclass(frozen=True)
class Plan:
    """A search: for which model on how many rows and fields, by which metric, what is fixed and what is tried."""

    model: str
    rows: int
    fields: int
    metric: Metric
    seed: int
    fixed: Mapping[str, Any]
    space: Space

    def settings(self, tried: Mapping[str, Any]) -> Settings:
        """Give the settings of a trial; what is neither tried nor fixed is the model's default."""
        return Settings.of(
            self.model, self.rows, self.fields, metric=self.metric, seed=self.seed, **{**self.fixed, **tried}
        )

    def start(self) -> dict[str, Any]:
        """Give what is tried first: the defaults, as far as they are in the space."""
        usual = self.settings({}).used()
        return {name: choice.suggest(usual.get(name)) for name, choice in self.space.items()}


def make_plan(
    model: str,
    rows: int,
    fields: int,
    metric: Metric,
    seed: int,
    fix: Mapping[str, Any],
    written: Mapping[str, Any] | None,
    place: str = "the space",
) -> Plan:
    """Plan a search around a model's defaults, or in a space that was ``written``, and check every value in it.

    >>> plan = make_plan("fmfm", 0, 0, "auc", 0, {"epochs": 3}, {"dim": [4, 8], "l2": 0.1})
    >>> plan.space, plan.fixed, plan.start()
    ({'dim': OneOf(values=(4, 8))}, {'l2': 0.1, 'epochs': 3}, {'dim': 8})
    """
    scalars = {name: value for name, value in (written or {}).items() if not isinstance(value, list | dict)}
    for name in (*(written or {}), *fix):
        if name in OWN:
            raise Fm2Error(f"tune: {name} is the same for all trials, and no part of what is tried or fixed")
    fixed = {**scalars, **fix}
    plan = Plan(model, rows, fields, metric, seed, fixed, {})
    usual = _checked(plan, {}, "--fix" if fix else place)
    if written is None:
        space = space_around(usual)
    else:
        lists = {name: value for name, value in written.items() if name not in scalars}
        space = {name: _choice(name, value, usual, place) for name, value in lists.items()}
    space = {name: choice for name, choice in space.items() if name not in fixed}
    for name, choice in space.items():
        for value in choice.values if isinstance(choice, OneOf) else (choice.low, choice.high):
            _checked(plan, {name: value}, place)
    if not space:
        raise Fm2Error(f"tune: there is nothing to try for {model}, for everything is fixed")
    return Plan(model, rows, fields, metric, seed, fixed, space)


def _checked(plan: Plan, tried: Mapping[str, Any], place: str) -> Settings:
    try:
        return plan.settings(tried)
    except Fm2Error as wrong:
        raise Fm2Error(str(wrong).replace("train:", f"tune: {place}:", 1)) from wrong


def _choice(name: str, value: Any, usual: Settings, place: str) -> Choice:
    if isinstance(value, list):
        if not value:
            raise Fm2Error(f"tune: {place}: {name} has no values to try")
        return OneOf(tuple(value))
    low, high, log = value.get("low"), value.get("high"), value.get("log", False)
    numbers = all(isinstance(number, int | float) and not isinstance(number, bool) for number in (low, high))
    if not numbers or not isinstance(log, bool) or set(value) - {"low", "high", "log"}:
        raise Fm2Error(f"tune: {place}: {name} is {value}; a range is like {{low = 0.001, high = 0.01, log = true}}")
    if low > high or (log and low <= 0):
        raise Fm2Error(f"tune: {place}: {name} cannot go from {low} to {high}{' by its logarithm' if log else ''}")
    whole = isinstance(usual.to_dict().get(name), int)
    return Between(low, high, log) if whole else Between(float(low), float(high), log)


def written_space(plan: Plan) -> dict[str, Any]:
    """Give a plan's space and what it fixes as :func:`make_plan` takes them; a list that is fixed is a sole choice."""
    fixed = {name: [value] if isinstance(value, list | tuple) else value for name, value in plan.fixed.items()}
    return {name: _written(choice) for name, choice in plan.space.items()} | fixed


def _written(choice: Choice) -> Any:
    if isinstance(choice, OneOf):
        return list(choice.values)
    return {"low": choice.low, "high": choice.high, **({"log": True} if choice.log else {})}


def read_fixed(texts: Sequence[str]) -> dict[str, Any]:
    """Understand what is given as ``--fix NAME=VALUE``.

    >>> read_fixed(["dim=8", "schedule=linear", "hidden=64,32"])
    {'dim': 8, 'schedule': 'linear', 'hidden': [64, 32]}
    """
    fixed = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Fm2Error(f"tune: --fix is '{text}', not NAME=VALUE, such as dim=8")
        fixed[name.strip().replace("-", "_")] = _value(value.strip())
    return fixed


def _value(text: str) -> Any:
    """Give what TOML makes of a value, a list of what stands between commas, or the word itself."""
    for form in (text, f"[{text}]"):
        try:
            return tomllib.loads(f"value = {form}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text
