"""The settings of each run in a comparison, and whether the run still has to be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import Settings, is_used, read_run_settings
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec, model_names
from fm2.training.race_record import Record
from fm2.training.resolve import CHANGEABLE, differences

State = Literal["new", "unfinished", "finished"]


def ignored_settings(models: Sequence[str], settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the models that ignore a common setting, by setting. Raise an error if all models ignore one.

    >>> ignored_settings(["lr", "fm", "fmfm"], {"dim": 16, "epochs": 2})
    {'dim': ['lr']}
    >>> ignored_settings(["fm", "fmfm"], {"dim": [4, 8]})
    {'dim': ['fm']}
    """
    ignored = {}
    for name, value in settings.items():
        without = [model for model in models if not _has(model, name, value)]
        if len(without) == len(models):
            title, users = setting_title(name, value), [model for model in model_names() if _has(model, name, value)]
            raise Fm2Error(f"compare: no compared model has the setting '{title}'; models with it: {', '.join(users)}")
        if without:
            ignored[name] = without
    return ignored


def used_settings(models: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that at least one of the models has.

    >>> used_settings(["lr"], {"dim": 16, "epochs": 2})
    {'epochs': 2}
    """
    return {name: value for name, value in settings.items() if any(_has(model, name, value) for model in models)}


def setting_title(name: str, value: Any) -> str:
    """Return the name of a setting, and whether its value is per field, which not every model supports.

    >>> setting_title("dim", [4, 8]), setting_title("dim", 8), setting_title("hidden", [64, 32])
    ('dim per field', 'dim', 'hidden')
    """
    return f"{name} per field" if _is_per_field(name, value) else name


def _is_per_field(name: str, value: Any) -> bool:
    return name == "dim" and isinstance(value, list | tuple)


def _has(model: str, name: str, value: Any) -> bool:
    """Return whether a model has a setting and supports this kind of value."""
    unsupported = _is_per_field(name, value) and get_spec(model).dimensions != "per_field"
    return is_used(model, name) and not unsupported


@dataclass(frozen=True)
class Training:
    """A training of a comparison: what it changes in a model's defaults, and all its settings.

    If :func:`fm2.train` compares several variants, these are the settings of the first one.
    """

    settings: Settings
    changes: Mapping[str, Any]


def training_of(
    model: str,
    seed: int,
    log: tuple[int, Sequence[int], float],
    common: Mapping[str, Any],
    model_settings: Mapping[str, Mapping[str, Any]],
) -> Training:
    """Return a model's training on a ``log`` (rows, field sizes, click rate), with the common settings and its own."""
    specific = model_settings.get(model, {})
    if "seed" in common or "seed" in specific:
        raise Fm2Error("compare: unexpected setting 'seed'; use seeds=, which apply to all models")
    shared = {name: value for name, value in common.items() if _has(model, name, value)}
    changes = {**shared, **specific, "seed": seed}
    try:
        return Training(Settings.of(model, *log, **changes), changes)
    except Fm2Error as error:
        raise Fm2Error(str(error).replace("train:", f"compare: {model}:", 1)) from error


def state_of(run: Path, row: Mapping[str, Any] | None, training: Training, operation: str = "compare") -> State:
    """Return how far a run of a resumed comparison or ablation is. Raise an error if its settings have changed.

    A run that failed may have other settings; it then starts from the beginning.
    """
    if not (run / SETTINGS).is_file():
        return "new"
    race, before, now = Record.read(run), read_run_settings(run / SETTINGS), training.settings.used()
    if race is not None and race.winner is not None:  # its form of L2 is not a change of the settings
        chosen = race.candidates[race.winner].changes
        before |= {name: now[name] for name in chosen if name not in training.changes}
    changed = differences(before, training.settings)
    changeable = ("threads",) if race is not None and race.winner is None else CHANGEABLE
    fixed = {name: values for name, values in changed.items() if name not in changeable}
    if row and row["error"]:
        return "new" if fixed else "unfinished"
    for name, (before, now) in fixed.items():
        change = f"{operation}: {run} has {name} {before}, not {now}"
        raise Fm2Error(f"{change}; use overwrite=True to train all models again")
    return "finished" if row and not changed.keys() - {"threads"} else "unfinished"
