"""The plan of a search: what it fixes and what it searches, and the files that a resumed search reads."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.artifacts.settings import Settings, read_settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, cannot_read, require
from fm2.files import check_output
from fm2.models.choices import Metric
from fm2.remote.paths import local_path
from fm2.studies.tuning.spaces import Candidates, Choices, Range, Space, space_around
from fm2.training.inputs import fingerprint_of
from fm2.training.resolve import log_for_defaults

PLAN, SPACE = "tune.json", "space.toml"

# Trials that are proposed together, and can be trained at once. With one at a time, each would profit from all others.
GENERATION, LARGEST_GENERATION = 4, 1000
# These are the same for all trials and have arguments of their own.
COMMON = ("model", "metric", "seed", "threads", "device")


@dataclass(frozen=True)
class Plan:
    """A search: the model, the size of the dataset, the metric, the fixed settings and the search space.

    Trials are proposed ``generation`` at a time.
    """

    model: str
    rows: int
    field_sizes: Sequence[int]
    click_rate: float
    metric: Metric
    seed: int
    fixed: Mapping[str, Any]
    space: Space
    generation: int = GENERATION

    def settings(self, tried: Mapping[str, Any]) -> Settings:
        """Return the settings of a trial. Settings that are neither tried nor fixed are the model's defaults."""
        log = self.rows, self.field_sizes, self.click_rate
        return Settings.of(self.model, *log, metric=self.metric, seed=self.seed, **{**self.fixed, **tried})

    def start(self) -> dict[str, Any]:
        """Return the first trial: the point of the space that is nearest to the defaults."""
        defaults = self.settings({}).used()
        return {name: candidates.nearest(defaults.get(name)) for name, candidates in self.space.items()}


def make_plan(
    model: str,
    rows: int,
    field_sizes: Sequence[int],
    click_rate: float,
    metric: Metric,
    seed: int,
    fix: Mapping[str, Any],
    written: Mapping[str, Any] | None,
    generation: int = GENERATION,
    source: str = "space",
) -> Plan:
    """Plan a search around a model's defaults, or in a ``written`` space, and validate every value of it.

    Errors name ``source``, the file of the space.

    >>> plan = make_plan("fmfm", 0, [], 0.0, "auc", 0, {"epochs": 3}, {"dim": [4, 8], "l2": 0.1})
    >>> plan.space, plan.fixed, plan.start()
    ({'dim': Choices(values=(4, 8))}, {'l2': 0.1, 'epochs': 3}, {'dim': 8})
    """
    for name in (*(written or {}), *fix):
        if name in COMMON:
            raise Fm2Error(f"tune: '{name}' is the same for all trials and cannot be searched or fixed")
    scalars = {name: value for name, value in (written or {}).items() if not isinstance(value, list | dict)}
    fixed = {**scalars, **fix}
    log = rows, field_sizes, click_rate
    plan = Plan(model, *log, metric, seed, fixed, {})
    defaults = _check(plan, {}, "fix=" if fix else source)
    if written is None:
        space = space_around(defaults)
    else:
        lists = {name: value for name, value in written.items() if name not in scalars}
        space = {name: _candidates(name, value, defaults, source) for name, value in lists.items()}
    space = {name: candidates for name, candidates in space.items() if name not in fixed}
    for name, candidates in space.items():
        values = candidates.values if isinstance(candidates, Choices) else (candidates.low, candidates.high)
        for value in values:
            _check(plan, {name: value}, source)
    if not space:
        raise Fm2Error(f"tune: nothing to search for {model}: all settings are fixed")
    return Plan(model, *log, metric, seed, fixed, space, generation)


def _check(plan: Plan, tried: Mapping[str, Any], source: str) -> Settings:
    try:
        return plan.settings(tried)
    except Fm2Error as error:
        raise Fm2Error(str(error).replace("train:", f"tune: {source}:", 1)) from error


def _candidates(name: str, value: Any, defaults: Settings, source: str) -> Candidates:
    """Parse the candidates of one setting: a list, or a table with ``low`` and ``high``."""
    if isinstance(value, list):
        if not value:
            raise Fm2Error(f"tune: {source}: the list of values for {name} is empty")
        return Choices(tuple(value))
    low, high, log = value.get("low"), value.get("high"), value.get("log", False)
    numeric = all(isinstance(number, int | float) and not isinstance(number, bool) for number in (low, high))
    if not numeric or not isinstance(log, bool) or set(value) - {"low", "high", "log"}:
        raise Fm2Error(
            f"tune: {source}: expected a range such as {{low = 0.001, high = 0.01, log = true}} for {name}, got {value}"
        )
    if low > high:
        raise Fm2Error(f"tune: {source}: {name} must have low <= high, got {low} and {high}")
    if log and low <= 0:
        raise Fm2Error(f"tune: {source}: {name} must have low > 0 for log = true, got {low}")
    integer = isinstance(defaults.to_dict().get(name), int)
    return Range(low, high, log) if integer else Range(float(low), float(high), log)


def find_plan(path: Path, resume: bool, model: str, dataset: Dataset, arguments: dict[str, Any]) -> Plan:
    """Plan a new search, or read the plan of a resumed one. Raise an error if the arguments contradict it."""
    check_output("tune", path, "search", PLAN, resume=resume)
    if not resume:
        return _make(model, dataset, arguments)
    stored, plan = _read(path / PLAN)
    if stored.get("data") != fingerprint_of(dataset):
        raise Fm2Error(f"tune: the search in {path} uses another dataset; resume with that one")
    if stored.get("row_weights") != arguments["row_weights"]:
        raise Fm2Error(f"tune: the search in {path} uses other row weights, or none; resume with the same")
    for name, value in {"model": model, **{each: arguments[each] for each in ("metric", "seed", "generation")}}.items():
        if value is not None and value != stored[name]:
            raise Fm2Error(f"tune: the search in {path} has {name} {stored[name]}, not {value}")
    if arguments["fix"] or arguments["space"] is not None:
        stored_too = {"metric": plan.metric, "seed": plan.seed, "generation": plan.generation}
        now = _make(model, dataset, {**arguments, **stored_too})
        if (now.space, now.fixed) != (plan.space, plan.fixed):
            raise Fm2Error(f"tune: the search in {path} has another space; resume without fix= and space=")
    return plan


def _read(path: Path) -> tuple[dict[str, Any], Plan]:
    """Read a plan, and the file's content with it."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        stored.setdefault("click_rate", 0.0)  # older searches have defaults that do not depend on it
        names = ("model", "rows", "field_sizes", "click_rate", "metric", "seed", "fixed", "space", "generation")
        return stored, make_plan(*(stored[name] for name in names))
    except OSError as error:
        raise cannot_read("tune", path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fm2Error(f"tune: {path} is damaged or not a search: {error}") from error


def _make(model: str, dataset: Dataset, arguments: dict[str, Any]) -> Plan:
    space, source = arguments["space"], "space"
    if isinstance(space, str | Path):
        space, source = read_settings(local_path(space), "tune", "space"), str(space)
    metric: Metric = arguments["metric"] or "log_loss"
    generation = GENERATION if arguments["generation"] is None else arguments["generation"]
    if not 1 <= generation <= LARGEST_GENERATION:
        raise Fm2Error(f"tune: generation must be between 1 and {LARGEST_GENERATION}, got {generation}")
    log, seed, fixed = log_for_defaults(dataset), arguments["seed"] or 0, arguments["fix"] or {}
    return make_plan(model, *log, metric, seed, fixed, space, generation, source)


def plan_files(plan: Plan, dataset: Dataset, row_weights: str | None) -> dict[str, str]:
    """Return the plan for a resumed search, and its space as a file that users can edit and pass as ``--space``."""
    written = _written_space(plan)
    space = {name: written[name] for name in plan.space}
    stored = {**vars(plan), "space": space, "data": fingerprint_of(dataset), "row_weights": row_weights}
    return {
        SPACE: require("tomli_w", "train", "writing settings").dumps(written),
        PLAN: json.dumps(stored, indent=1) + "\n",
    }


def _written_space(plan: Plan) -> dict[str, Any]:
    """Return a plan's space and fixed settings as :func:`make_plan` reads them; a fixed list is a single choice."""
    written: dict[str, Any] = {}
    for name, each in plan.space.items():
        log = {"log": True} if isinstance(each, Range) and each.log else {}
        written[name] = list(each.values) if isinstance(each, Choices) else {"low": each.low, "high": each.high, **log}
    return written | {name: [value] if isinstance(value, list | tuple) else value for name, value in plan.fixed.items()}


def read_fixed(texts: Sequence[str]) -> dict[str, Any]:
    """Parse the values of ``--fix NAME=VALUE``.

    >>> read_fixed(["dim=8", "schedule=linear", "hidden=64,32"])
    {'dim': 8, 'schedule': 'linear', 'hidden': [64, 32]}
    """
    fixed = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Fm2Error(f"tune: fix= must be NAME=VALUE, such as dim=8, got '{text}'")
        parsed: Any = value.strip()
        for toml in (f"[{parsed}]", parsed):  # the last one that TOML can parse, else the plain string
            with contextlib.suppress(tomllib.TOMLDecodeError):
                parsed = tomllib.loads(f"value = {toml}")["value"]
        fixed[name.strip().replace("-", "_")] = parsed
    return fixed
