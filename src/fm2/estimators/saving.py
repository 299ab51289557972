"""A fitted classifier as a directory: the files of a run, and one of JSON with what scikit-learn wants to know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fm2.artifacts.history import read_history, write_history
from fm2.artifacts.run_directory import HISTORY, SETTINGS
from fm2.artifacts.settings import read_settings
from fm2.errors import Fm2Error, require
from fm2.files import atomic_directory
from fm2.schema import Field, Schema
from fm2.training.run import Run

if TYPE_CHECKING:
    from fm2.estimators.classifier import Classifier

ESTIMATOR = "estimator.json"
FORMAT, VERSION = "fm2 estimator", 1
Kind = TypeVar("Kind", bound="Classifier")


def save(estimator: Classifier, path: Path, overwrite: bool) -> None:
    """Write a directory, which appears whole or not at all."""
    tomli_w = require("tomli_w", "train", "writing settings")
    names = getattr(estimator, "feature_names_in_", None)
    classes = estimator.classes_
    values = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(estimator).__name__,
        "parameters": {name: _to_json(value) for name, value in estimator.get_params(deep=False).items()},
        "classes": classes.tolist(),
        "classes_type": classes.dtype.str if classes.dtype.kind in "biufU" else "O",
        "features": estimator.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
    }
    try:
        text = json.dumps(values, indent=1)
    except TypeError as wrong:
        raise Fm2Error(f"save: the classes {classes.tolist()} are no texts or numbers, which JSON holds") from wrong
    with atomic_directory(path, "save", "classifier", ESTIMATOR, overwrite) as directory:
        estimator.run_.save(directory)
        write_history(directory / HISTORY, estimator.history_)
        (directory / SETTINGS).write_text(tomli_w.dumps(estimator.settings_), encoding="utf-8")
        (directory / ESTIMATOR).write_text(text, encoding="utf-8")


def load(kind: type[Kind], path: Path) -> Kind:
    """Read what :func:`save` wrote, into a classifier of this kind."""
    try:
        values = json.loads((path / ESTIMATOR).read_text(encoding="utf-8"))
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            raise Fm2Error(f"load: {path} has the format '{values['format']}' {values['version']}")
        kinds = {found.__name__: found for found in _kinds(kind)}
        if values["class"] not in kinds:
            raise Fm2Error(f"load: {path} has a {values['class']}, which is no {kind.__name__}")
        estimator = kinds[values["class"]](**{name: _from_json(value) for name, value in values["parameters"].items()})
        estimator.classes_ = np.array(values["classes"], dtype=values["classes_type"])
        estimator.n_features_in_ = int(values["features"])
        if values["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(values["feature_names"], dtype=object)
    except OSError as missing:
        raise Fm2Error(f"load: {path} has no saved classifier ({ESTIMATOR}): {missing.strerror}") from missing
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise Fm2Error(f"load: {path / ESTIMATOR} is damaged, or no classifier of fm2's: {wrong}") from wrong
    estimator.run_ = Run.open(path, estimator.threads or 0)
    estimator.settings_, estimator.history_ = read_settings(path / SETTINGS), read_history(path / HISTORY)
    return estimator


def _kinds(kind: type[Kind]) -> Iterator[type[Kind]]:
    yield kind
    for found in kind.__subclasses__():
        yield from _kinds(found)


def _to_json(value: Any) -> Any:
    """Give what JSON holds of a parameter; fields as their settings, under a key that tells what they are."""
    if isinstance(value, Schema):
        return {"schema": value.to_dict()}
    if isinstance(value, Field):
        return {"field": value.to_dict()}
    if isinstance(value, dict):
        return {"mapping": {name: _to_json(part) for name, part in value.items()}}
    if isinstance(value, list | tuple):
        return [_to_json(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return None if isinstance(value, np.random.RandomState) else value  # what it has drawn is in the settings


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(part) for part in value]
    if not isinstance(value, dict):
        return value
    ((what, inner),) = value.items()
    if what == "schema":
        return Schema.from_dict(inner)
    if what == "field":
        return Field(**inner)
    return {name: _from_json(part) for name, part in inner.items()}
