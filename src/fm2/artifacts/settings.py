"""Training settings: a model's defaults for the size of its log, changed by options or a TOML file."""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fm2.errors import Fm2Error, cannot_read, not_found, suggest
from fm2.models.choices import Metric, Optimizer, Schedule
from fm2.models.defaults import RATES
from fm2.models.options import Option
from fm2.models.registry import get_spec, is_model, model_names, models_that_take, specs
from fm2.models.spec import OPTIONAL_SETTINGS

MAX_DIM = 1024

# Defaults that were found for the model's own optimizer. With another one they do not apply.
OPTIMIZER_SETTINGS = ("l1", "l2", "l2_power", "linear_l2_scale", "initial_accumulator", "ema_decay", "schedule")

# What training did before a setting existed; files of older runs lack it.
BEFORE = {"unknown_dropout": 0.0, "matrices": "full", "linear_l2_scale": 1.0}


@dataclass(frozen=True)
class Settings:
    """Everything, apart from the data, that determines the result of a training.

    ``options`` are the model's own. They are passed and saved alongside the other settings. The annotation of a number
    has the smallest and the largest valid value.

    >>> Settings.of("fmfm", dim=16).dim
    16
    >>> Settings.of("deepfm", hidden=[64, 32]).options["hidden"]
    (64, 32)
    """

    model: str
    dim: int | tuple[int, ...] = 8
    embedding_std: Annotated[float, 0.0, 100.0] = 0.01

    optimizer: Optimizer = "adam"
    learning_rate: Annotated[float, 1e-12, 1e6] = 0.001
    dense_learning_rate: Annotated[float, 0.0, 1e6] = 0.001
    learning_rate_scale: Annotated[float, 0.0, 1e6] = 1.0
    weight_decay: Annotated[float, 0.0, 1e6] = 0.0
    schedule: Schedule = "constant"
    batch_size: Annotated[int, 1, 10_000_000] = 1024
    epochs: Annotated[int, 1, 1_000_000] = 10
    l2: Annotated[float, 0.0, 1e9] = 0.0
    l2_power: Annotated[float, 0.0, 1.0] = 0.0
    linear_l2_scale: Annotated[float, 0.0, 1e6] = 1.0
    dense_l2: Annotated[float, 0.0, 1e9] = 0.0
    l1: Annotated[float, 0.0, 1e9] = 0.0
    initial_accumulator: Annotated[float, 0.0, 1e9] = 0.0
    dropout: Annotated[float, 0.0, 0.99] = 0.0
    field_dropout: Annotated[float, 0.0, 0.99] = 0.0
    value_dropout: Annotated[float, 0.0, 0.99] = 0.0
    unknown_dropout: Annotated[float, 0.0, 0.5] = 0.3
    ema_decay: Annotated[float, 0.0, 0.999999] = 0.0
    positive_weight: Annotated[float, 1e-9, 1e9] = 1.0

    metric: Metric = "log_loss"
    evaluations_per_epoch: Annotated[int, 1, 10_000] = 4
    patience: Annotated[int, 1, 1_000_000] = 8

    seed: Annotated[int, 0, 2**63 - 1] = 0
    threads: Annotated[int, 0, 1024] = 0
    device: str = "cpu"

    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, model: str, rows: int = 0, field_sizes: Sequence[int] = (), click_rate: float = 0.0, **changes: Any
    ) -> Settings:
        """Return a model's defaults for so many training rows, such fields and such a click rate, with changes.

        A setting that would have no effect raises an error.
        """
        spec = get_spec(model, "train")
        check_names(changes, model)
        size = changes.get("batch_size")
        batch_size = size if isinstance(size, int) and size > 0 else 0
        defaults = spec.default_settings(rows, field_sizes, click_rate, batch_size)
        optimizer = changes.get("optimizer", defaults["optimizer"])
        if optimizer != defaults["optimizer"]:
            defaults = {name: value for name, value in defaults.items() if name not in OPTIMIZER_SETTINGS}
            defaults["learning_rate"] = RATES.get(str(optimizer), defaults["learning_rate"])
        return cls.from_dict({"model": model, **defaults, **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Create settings from plain values; unknown names, invalid values and conflicts raise an error."""
        settings = cls._read(values)
        for conflict in _conflicts(settings):
            raise Fm2Error(f"train: {conflict}")
        return settings

    @classmethod
    def _read(cls, values: Mapping[str, Any]) -> Settings:
        """Create settings from plain values and check each value by itself."""
        check_names(values)
        dim = values.get("dim", cls.dim)
        shared = {name: value for name, value in values.items() if name in shared_settings()}
        shared["dim"] = tuple(dim) if isinstance(dim, list | tuple) else dim
        spec = get_spec(values["model"], "train")
        own = {**spec.default_settings(), **values}
        try:
            settings = cls(**shared, options={option.name: option.checked(own[option.name]) for option in spec.options})
            for option in _value_checks():
                option.checked(getattr(settings, option.name))
            for dim in settings.dim if isinstance(settings.dim, tuple) else [settings.dim]:
                Option("dim", int, 8, "", 1, MAX_DIM).checked(dim)
        except ValueError as error:
            raise Fm2Error(f"train: {error}") from error
        return settings

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON stores them."""
        values = {name: getattr(self, name) for name in shared_settings()} | dict(self.options)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def used(self) -> dict[str, Any]:
        """Return the plain values that the model uses; :meth:`of` accepts all of them."""
        return {name: value for name, value in self.to_dict().items() if is_used(self.model, name)}


def shared_settings() -> list[str]:
    """Return the names of the settings that are not options of single models."""
    return [field.name for field in dataclasses.fields(Settings) if field.name != "options"]


def model_options() -> dict[str, Option]:
    """Return the options of all models by name. The same name means the same thing in every model."""
    return {option.name: option for spec in specs() for option in spec.options}


def is_used(model: str, setting: str) -> bool:
    """Return whether a setting has an effect on a model."""
    for_some = setting in OPTIONAL_SETTINGS or setting in model_options()
    return not for_some or get_spec(model).takes(setting)


def check_names(names: Iterable[str], model: str | None = None, others: Iterable[str] = ()) -> None:
    """Raise an error for a setting that no model has, or that has no effect on this model.

    The error may suggest ``others``, which the caller takes besides settings.
    """
    known = list(dict.fromkeys([*shared_settings(), *model_options()]))
    for name in names:
        if name not in known:
            raise Fm2Error(f"train: unknown setting '{name}'; {suggest(name, [*known, *others])}")
        if model and not is_used(model, name):
            users, networks = models_that_take(name), model_names(deep=True)
            if set(networks) <= set(users):
                users = [user for user in users if user not in networks] + ["networks"]
            raise Fm2Error(f"train: {model} does not use {name}; it applies to {', '.join(users)}")


@functools.cache
def _value_checks() -> list[Option]:
    """Return an option for every setting whose annotation has choices or a range, to check its value."""
    hints = get_type_hints(Settings, include_extras=True).items()
    choices = [Option(name, str, "", "", choices=get_args(hint)) for name, hint in hints if get_origin(hint) is Literal]
    ranges = [(name, *get_args(hint)) for name, hint in hints if get_origin(hint) is Annotated]
    return choices + [Option(name, kind, low, "", low, high) for name, kind, low, high in ranges]


def _conflicts(settings: Settings) -> Iterator[str]:
    """Yield the combinations of settings that would have no effect or an unexpected one."""
    spec, ftrl = get_spec(settings.model), settings.optimizer == "ftrl"
    with_ftrl = [spec.name for spec in specs() if spec.rowwise and "ftrl" in spec.rowwise.optimizers]
    if ftrl and spec.name not in with_ftrl:
        yield f"{spec.name} cannot be trained with ftrl; {', '.join(with_ftrl)} can"
    if ftrl and settings.schedule != "constant":
        yield "ftrl lowers its rates by itself; it needs a constant schedule"
    if settings.l1 and not ftrl:
        yield 'l1 needs optimizer="ftrl"'
    if settings.initial_accumulator and settings.optimizer != "adagrad":
        yield 'initial_accumulator needs optimizer="adagrad"'
    if spec.dimensions == "scalar" and not isinstance(settings.dim, int):
        yield f"{spec.name} uses one dimension for all fields, got {settings.dim}"


def read_settings(path: Path, operation: str = "train", kind: str = "settings") -> dict[str, Any]:
    """Read settings from a TOML file. Errors name the ``operation`` and the ``kind`` of file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise cannot_read(f"{operation}: {kind}", path, error) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Fm2Error(f"{operation}: {path} is not valid TOML: {error}") from error


def read_run_settings(path: Path, operation: str = "train") -> dict[str, Any]:
    """Read the settings file of a run. Settings that older runs lack have the values that were in effect then."""
    settings = read_settings(path, operation)
    model = settings.get("model")
    known = isinstance(model, str) and is_model(model)
    return {name: value for name, value in BEFORE.items() if known and is_used(str(model), name)} | settings


def read_changes(path: Path, model: str) -> dict[str, Any]:
    """Read a user's settings file for a model, or for ``auto``. Errors name the file."""
    changes = read_settings(path)
    named = changes.pop("model", model)
    if named != model:
        raise Fm2Error(f"train: {path} has settings for {named}, not for {model}")
    try:
        check_names(changes, model if is_model(model) else None)
        if is_model(model):
            Settings._read({"model": model, **changes})
    except Fm2Error as error:
        raise Fm2Error(str(error).replace("train:", f"train: {path}:", 1)) from error
    return changes


def read_dim(text: str, fields: tuple[str, ...]) -> int | list[int]:
    """Parse ``16``, ``4,8,2,...`` (one per field), or the path of a JSON file with the dimension of each field."""
    try:
        return int(text) if "," not in text else [int(part) for part in text.split(",")]
    except ValueError:
        pass
    if text.endswith(".json") and not Path(text).exists():
        raise not_found("train: dim", text)
    try:
        dims = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Fm2Error(f"train: dim must be a number, a list or a readable JSON file, got '{text}'") from error
    if isinstance(dims, dict):
        for name in fields:
            if name not in dims:
                raise Fm2Error(f"train: {text} has no dimension for field '{name}'")
        for name in dims:
            if name not in fields:
                raise Fm2Error(f"train: {text}: unknown field '{name}'; {suggest(name, fields)}")
        dims = [dims[name] for name in fields]
    if not isinstance(dims, int | list):
        raise Fm2Error(f"train: {text} must contain a list of dimensions or an object with one per field")
    return dims
