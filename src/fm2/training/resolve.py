"""From a model, the size and click rate of its data and the user's changes to the settings of one training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import Settings, read_run_settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec

CHANGEABLE = ("threads", "epochs", "patience")  # when a run is resumed


def resolve_settings(
    model: str,
    dataset: Dataset,
    changes: Mapping[str, Any],
    resumed: Path | None = None,
    start: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of a training.

    They are, in order of precedence: ``changes``, the settings of the run to be ``resumed``, the shape of the model to
    ``start`` from (its config), and the model's defaults for such a log.
    """
    previous = _previous_settings(model, resumed) if resumed else {}
    shape = _shape_to_keep(model, start) if start else {}
    settings = Settings.of(model, *log_for_defaults(dataset), **{**shape, **previous, **changes})
    for name, value in shape.items():
        if settings.to_dict()[name] != value:
            raise Fm2Error(f"train: the model to start from has {name} {value}, not {settings.to_dict()[name]}")
    if resumed:
        for name, (before, now) in differences(previous, settings).items():
            if name not in CHANGEABLE:
                raise Fm2Error(
                    f"train: the run in {resumed} has {name} {before}, not {now}; use overwrite=True to replace it"
                )
    return settings


def log_for_defaults(dataset: Dataset) -> tuple[int, list[int], float]:
    """Return what a model's defaults depend on: the training rows, the sizes of the fields and the click rate.

    The size of a tree field counts as 1: a model does not see it, or only in a few coarse buckets. The click rate of
    aggregated rows is 0, which means unknown: a row of many impressions says as much as usual, however rare clicks are.
    """
    fields = zip(dataset.schema.fields, dataset.field_sizes, strict=True)
    train = dataset.manifest["splits"]["train"]
    click_rate = 0.0 if "impressions" in train else train["clicks"] / max(train["rows"], 1)
    return len(dataset.train), [1 if field.trees else size for field, size in fields], click_rate


def _previous_settings(model: str, path: Path) -> dict[str, Any]:
    """Read the settings of a run that is resumed."""
    settings = read_run_settings(path / SETTINGS)
    if settings.get("model") != model:
        raise Fm2Error(f"train: the run in {path} trains {settings.get('model')}, not {model}")
    return {name: value for name, value in settings.items() if name != "model"}


def _shape_to_keep(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a warm start takes over from the trained model."""
    if config["model"] != model:
        raise Fm2Error(f"train: the model to start from is {config['model']}, not {model}")
    spec = get_spec(model)
    if spec.no_warm_start:
        raise Fm2Error(f"train: {model} cannot start from a trained model: {spec.no_warm_start}")
    return spec.shape(config)


def differences(before: Mapping[str, Any], settings: Settings) -> dict[str, tuple[Any, Any]]:
    """Return the values before and now of the settings that changed. Files of older runs may lack some settings."""
    values = {name: (before.get(name, getattr(Settings, name, None)), now) for name, now in settings.used().items()}
    return {name: (old, now) for name, (old, now) in values.items() if old != now and name != "model"}


def trains_rowwise(settings: Settings) -> bool:
    """Return whether a native kernel trains the model row by row with these settings."""
    kernel = get_spec(settings.model).rowwise
    if kernel is None or settings.device != "cpu" or settings.optimizer not in kernel.optimizers:
        return False
    return not (settings.ema_decay or (settings.l2 and settings.l2_power))


def slow_path_warning(settings: Settings) -> str | None:
    """Return a warning that names the setting that rules out the only native kernel, if there is one."""
    if get_spec(settings.model).forward_backward or settings.device != "cpu" or trains_rowwise(settings):
        return None
    reason = f"the optimizer {settings.optimizer}"
    if settings.ema_decay:
        reason = "ema_decay"
    elif settings.l2 and settings.l2_power:
        reason = "l2_power"
    return f"the native kernel for {settings.model} does not support {reason}; torch trains it, many times slower"
