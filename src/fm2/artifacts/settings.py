"""How a model is trained: one set of values, from defaults that suit the model, a TOML file, or options."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from fm2.errors import Fm2Error, suggest
from fm2.models.choices import Linear, Metric, Optimizer, Schedule
from fm2.models.defaults import MODELS, RATES, defaults
from fm2.models.networks import NETWORKS

FAMILY = ("fm", "fwfm", "fvfm", "fmfm")
MAX_DIM = 1024

# Defaults that were found for the model's own optimizer, and suit no other.
OPTIMIZERS_OWN = ("l1", "l2", "l2_power", "initial_accumulator", "ema_decay", "schedule")

# Settings that only some models have.
_USED_BY = {
    "dim": (*FAMILY, "ffm", *NETWORKS),
    "linear": FAMILY,
    "hash_bits": ("poly2",),
    "embedding_std": (*FAMILY, "ffm", *NETWORKS),
    "matrix_std": FAMILY,
    "dense_learning_rate": ("lr", *FAMILY, *NETWORKS),
    "learning_rate_scale": (*FAMILY, *NETWORKS),
    "dropout": (*FAMILY, *NETWORKS),
    "field_dropout": (*FAMILY, *NETWORKS),
    "weight_decay": tuple(NETWORKS),
}


def _users(option: str) -> tuple[str, ...]:
    """Name the networks that have an option of this name."""
    return tuple(name for name, network in NETWORKS.items() if option in network.option_names)


OPTIONS = {option.name: option for network in NETWORKS.values() for option in network.options}
USED_BY = _USED_BY | {name: (*_USED_BY.get(name, ()), *_users(name)) for name in OPTIONS}


@dataclass(frozen=True)
class Settings:
    """Everything that decides what comes out of a training, but for the data.

    ``network`` has the options of a network's own. They are given, and written, beside all others.

    >>> Settings.of("fmfm", dim=16).dim
    16
    >>> Settings.of("deepfm", hidden=[64, 32]).network["hidden"]
    (64, 32)
    """

    model: str
    dim: int | tuple[int, ...] = 8
    linear: Linear | None = None
    hash_bits: int = 22
    embedding_std: float = 0.01
    matrix_std: float = 0.1

    optimizer: Optimizer = "adam"
    learning_rate: float = 0.001
    dense_learning_rate: float = 0.001
    learning_rate_scale: float = 1.0
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    batch_size: int = 1024
    epochs: int = 10
    l2: float = 0.0
    l2_power: float = 0.0
    l1: float = 0.0
    initial_accumulator: float = 0.0
    dropout: float = 0.0
    field_dropout: float = 0.0
    ema_decay: float = 0.0
    positive_weight: float = 1.0

    metric: Metric = "log_loss"
    evaluations_per_epoch: int = 4
    patience: int = 4

    seed: int = 0
    threads: int = 0
    device: str = "cpu"

    network: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: str, rows: int = 0, fields: int = 0, **changes: Any) -> Settings:
        """Give a model's defaults for so many training rows and fields, changed as told.

        What would have no effect is refused.
        """
        if model not in MODELS:
            raise Fm2Error(f"train: there is no model '{model}'; {suggest(model, MODELS)}")
        _check_names(model, changes)
        size = changes.get("batch_size")
        usual = defaults(model, rows, fields, size if isinstance(size, int) and size > 0 else 0)
        optimizer = changes.get("optimizer", usual["optimizer"])
        if optimizer != usual["optimizer"]:
            usual = {name: value for name, value in usual.items() if name not in OPTIMIZERS_OWN}
            usual["learning_rate"] = RATES.get(optimizer, usual["learning_rate"])
        return cls.from_dict({"model": model, **usual, **changes})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Make settings from plain values, refusing names and types that are not understood."""
        settings = cls._read(values)
        for wrong, message in _conflicts(settings):
            if wrong:
                raise Fm2Error(f"train: {message}")
        return settings

    @classmethod
    def _read(cls, values: dict[str, Any]) -> Settings:
        """Make settings from plain values, each of which is right by itself."""
        _check_names(values["model"], values, used=False)
        dim = values.get("dim", cls.dim)
        shared = {name: value for name, value in values.items() if name in _fields()}
        settings = cls(
            **{**shared, "dim": tuple(dim) if isinstance(dim, list | tuple) else dim},
            network=_network(values),
        )
        settings._check_values()
        return settings

    def _check_values(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in get_args(choices) and not (name == "linear" and value is None):
                raise Fm2Error(f"train: {name} is '{value}'; it is one of {', '.join(get_args(choices))}")
        for name, low, high in _RANGES:
            value, whole = getattr(self, name), isinstance(low, int) and isinstance(high, int)
            number = isinstance(value, int) if whole else isinstance(value, int | float)
            if isinstance(value, bool) or not number or not low <= value <= high:
                kind = "a whole number" if whole else "a number"
                raise Fm2Error(f"train: {name} is {value!r}; it is {kind} from {low} to {high}")
        for dim in self.dim if isinstance(self.dim, tuple) else (self.dim,):
            if isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= MAX_DIM:
                raise Fm2Error(f"train: a dimension is {dim!r}; it is a whole number from 1 to {MAX_DIM}")

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, as JSON holds them."""
        values = {name: getattr(self, name) for name in _fields()} | dict(self.network)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def used(self) -> dict[str, Any]:
        """Give the plain values that this model has a use for, as :meth:`of` takes them."""
        return {
            name: value
            for name, value in self.to_dict().items()
            if value is not None and self.model in USED_BY.get(name, (self.model,))
        }


def _check_names(model: str, values: dict[str, Any], used: bool = True) -> None:
    """Refuse what is no setting, and if it has to be ``used``, what this model has no use for."""
    names = [*_fields(), *(name for name in OPTIONS if name not in _fields())]
    for name in values:
        if name not in names:
            raise Fm2Error(f"train: '{name}' is not a setting; {suggest(name, names)}")
        if used and model not in USED_BY.get(name, (model,)):
            raise Fm2Error(f"train: {name} is for {_named(USED_BY[name])}, not for {model}")


def _named(models: Sequence[str]) -> str:
    """Name models; networks as such where all of them are meant.

    >>> _named(["fm", *NETWORKS])
    'fm, networks'
    """
    together = [name for name in models if name not in NETWORKS] + ["networks"]
    return ", ".join(together if set(NETWORKS) <= set(models) else models)


def _fields() -> list[str]:
    """Name the settings that are not a network's own."""
    return [field.name for field in dataclasses.fields(Settings) if field.name != "network"]


def _network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the options of a network's own, with defaults for those that are not among the values."""
    declared = NETWORKS[values["model"]].options if values["model"] in NETWORKS else ()
    usual = defaults(values["model"]) if declared else {}
    try:
        return {
            option.name: option.checked(values.get(option.name, usual[option.name]))
            for option in declared
            if option.name not in _fields()
        }
    except ValueError as wrong:
        raise Fm2Error(f"train: {wrong}") from wrong


CHOICES = {"linear": Linear, "optimizer": Optimizer, "schedule": Schedule, "metric": Metric}

# A range of whole numbers is for whole numbers alone.
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("embedding_std", 0.0, 100.0),
    ("matrix_std", 0.0, 100.0),
    ("hash_bits", 1, 30),
    ("learning_rate", 1e-12, 1e6),
    ("dense_learning_rate", 0.0, 1e6),
    ("learning_rate_scale", 0.0, 1e6),
    ("weight_decay", 0.0, 1e6),
    ("batch_size", 1, 10_000_000),
    ("epochs", 1, 1_000_000),
    ("l2", 0.0, 1e9),
    ("l2_power", 0.0, 1.0),
    ("l1", 0.0, 1e9),
    ("initial_accumulator", 0.0, 1e9),
    ("dropout", 0.0, 0.99),
    ("field_dropout", 0.0, 0.99),
    ("ema_decay", 0.0, 0.999999),
    ("positive_weight", 1e-9, 1e9),
    ("evaluations_per_epoch", 1, 10_000),
    ("patience", 1, 1_000_000),
    ("seed", 0, 2**63 - 1),
    ("threads", 0, 1024),
)


def _conflicts(chosen: Settings) -> list[tuple[bool, str]]:
    """Tell what would have no effect, or not the expected one."""
    model, ftrl = chosen.model, chosen.optimizer == "ftrl"
    return [
        (ftrl and model not in ("lr", "poly2"), f"ftrl is for the linear models, lr and poly2, not for {model}"),
        (ftrl and chosen.schedule != "constant", "ftrl lets its rates fall by itself; leave the schedule constant"),
        (bool(chosen.l1) and not ftrl, "l1 is ftrl's; choose --optimizer ftrl"),
        (bool(chosen.initial_accumulator) and chosen.optimizer != "adagrad", "initial_accumulator are adagrad's"),
        (model == "ffm" and not isinstance(chosen.dim, int), "ffm has one dimension for all fields"),
    ]


def read_settings(path: Path, operation: str = "train") -> dict[str, Any]:
    """Read settings from a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as missing:
        raise Fm2Error(f"{operation}: {path}: {missing.strerror}") from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise Fm2Error(f"{operation}: {path} is not TOML: {wrong}") from wrong


def read_changes(path: Path, model: str) -> dict[str, Any]:
    """Read the settings of a person's own file for a model; what is wrong in it is told with the file's name."""
    changes = read_settings(path)
    meant = changes.pop("model", model)
    if meant != model:
        raise Fm2Error(f"train: {path} is for {meant}, not for {model}")
    try:
        _check_names(model, changes)
        Settings._read({"model": model, **changes})
    except Fm2Error as wrong:
        raise Fm2Error(str(wrong).replace("train:", f"train: {path}:", 1)) from wrong
    return changes


def read_dim(text: str, fields: tuple[str, ...]) -> int | list[int]:
    """Understand ``16``, ``4,8,2,...`` (one per field), or a JSON file that gives each field's dimension by name.

    >>> read_dim("16", ("a", "b")), read_dim("4,8", ("a", "b"))
    (16, [4, 8])
    """
    try:
        return int(text) if "," not in text else [int(part) for part in text.split(",")]
    except ValueError:
        pass
    try:
        found = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise Fm2Error(f"train: --dim is '{text}', which is no number, no list and no readable JSON file") from wrong
    if isinstance(found, dict):
        for name in fields:
            if name not in found:
                raise Fm2Error(f"train: {text} has no dimension for the field '{name}'")
        for name in found:
            if name not in fields:
                raise Fm2Error(f"train: {text}: there is no field '{name}'; {suggest(name, fields)}")
        found = [found[name] for name in fields]
    if not isinstance(found, int | list):
        raise Fm2Error(f"train: {text} holds neither a list of dimensions nor a table of them by field")
    return found
