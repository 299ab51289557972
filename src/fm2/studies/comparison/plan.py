"""With which settings each model of a comparison is trained, and what of it is done already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fm2.artifacts.settings import Settings, is_used, read_settings
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec, model_names
from fm2.training.resolve import CHANGEABLE, differences
from fm2.training.run import SETTINGS

State = Literal["new", "unfinished", "finished"]


def left_out(models: Sequence[str], settings: Mapping[str, Any]) -> dict[str, list[str]]:
    """Name, for each common setting, the models that have no use for it, where there are any.

    >>> left_out(["lr", "fm", "fmfm"], {"dim": 16, "epochs": 2}), left_out(["fm", "fmfm"], {"dim": [4, 8]})
    ({'dim': ['lr']}, {'dim': ['fm']})
    """
    found = {name: [model for model in models if not _has(model, name, value)] for name, value in settings.items()}
    for name, without in found.items():
        if len(without) == len(models):
            has = [model for model in model_names() if _has(model, name, settings[name])]
            raise Fm2Error(f"compare: {named(name, settings[name])} is for {', '.join(has)}; none of them is compared")
    return {name: without for name, without in found.items() if without}


def usable(models: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give those settings that mean something to one of the models at least.

    >>> usable(["lr"], {"dim": 16, "epochs": 2})
    {'epochs': 2}
    """
    return {name: value for name, value in settings.items() if any(_has(model, name, value) for model in models)}


def named(name: str, value: Any) -> str:
    """Name a setting, and that it is one per field, which not all models that have it can have.

    >>> named("dim", [4, 8]), named("dim", 8), named("hidden", [64, 32])
    ('dim per field', 'dim', 'hidden')
    """
    return f"{name} per field" if _is_per_field(name, value) else name


def _is_per_field(name: str, value: Any) -> bool:
    return name == "dim" and isinstance(value, list | tuple)


def _has(model: str, name: str, value: Any) -> bool:
    """Tell whether a setting means something to a model; not all can have a dimension per field."""
    barred = _is_per_field(name, value) and get_spec(model).dimensions != "per_field"
    return is_used(model, name) and not barred


def settings_for(
    model: str, seed: int, size: tuple[int, int], common: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]
) -> Settings:
    """Give a model's settings: its defaults for rows and fields, what of the common ones it has, and its own."""
    for what in (common, own.get(model, {})):
        if "seed" in what:
            raise Fm2Error("compare: a seed is none of the settings of all models; --seeds says how many each has")
    shared = {name: value for name, value in common.items() if _has(model, name, value)}
    try:
        return Settings.of(model, *size, **{**shared, **own.get(model, {}), "seed": seed})
    except Fm2Error as wrong:
        raise Fm2Error(str(wrong).replace("train:", f"compare: {model}:", 1)) from wrong


def state_of(place: Path, row: Mapping[str, Any] | None, settings: Settings) -> State:
    """Tell how far a training is whose comparison is gone on with; other settings than it had are refused.

    What has failed may be tried again with others, from the beginning.
    """
    if not (place / SETTINGS).is_file():
        return "new"
    changed = differences(read_settings(place / SETTINGS), settings)
    refused = {name: values for name, values in changed.items() if name not in CHANGEABLE}
    if row and row["error"]:
        return "new" if refused else "unfinished"
    for name, (before, now) in refused.items():
        raise Fm2Error(f"compare: {place} has {name} {before}, not {now}; --overwrite begins all of them anew")
    return "finished" if row and not changed.keys() - {"threads"} else "unfinished"
