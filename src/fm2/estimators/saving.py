"""Saving a fitted classifier: the files of a run, and a JSON file with scikit-learn's attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fm2.artifacts.run_directory import HISTORY, SETTINGS, read_history, write_history
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
    """Write a directory atomically."""
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
    except TypeError as error:
        raise Fm2Error(f"save: the classes must be strings or numbers, got {classes.tolist()}") from error
    with atomic_directory(path, "save", "classifier", ESTIMATOR, overwrite) as directory:
        estimator.run_.save(directory)
        write_history(directory / HISTORY, estimator.history_)
        (directory / SETTINGS).write_text(tomli_w.dumps(estimator.settings_), encoding="utf-8")
        (directory / ESTIMATOR).write_text(text, encoding="utf-8")


def load(kind: type[Kind], path: Path) -> Kind:
    """Read a saved classifier, which has to be of this class or a subclass."""
    try:
        values = json.loads((path / ESTIMATOR).read_text(encoding="utf-8"))
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            raise Fm2Error(f"load: {path} has an unsupported format: '{values['format']}' {values['version']}")
        classes = {subclass.__name__: subclass for subclass in _subclasses(kind)}
        if values["class"] not in classes:
            raise Fm2Error(f"load: {path} has a {values['class']}, not a {kind.__name__}")
        estimator = classes[values["class"]](
            **{name: _from_json(value) for name, value in values["parameters"].items()}
        )
        estimator.classes_ = np.array(values["classes"], dtype=values["classes_type"])
        estimator.n_features_in_ = int(values["features"])
        if values["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(values["feature_names"], dtype=object)
    except OSError as error:
        raise Fm2Error(f"load: {path} has no saved classifier ({ESTIMATOR}): {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Fm2Error(f"load: {path / ESTIMATOR} is damaged or not a classifier: {error}") from error
    estimator.run_ = Run.open(path, estimator.threads or 0)
    estimator.settings_, estimator.history_ = read_settings(path / SETTINGS), read_history(path / HISTORY)
    return estimator


def _subclasses(kind: type[Kind]) -> Iterator[type[Kind]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _subclasses(subclass)


def _to_json(value: Any) -> Any:
    """Convert a parameter to JSON; schemas, fields and mappings get a key that names their kind."""
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
    return None if isinstance(value, np.random.RandomState) else value  # the settings have the seed that it drew


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(part) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "schema":
        return Schema.from_dict(inner)
    if kind == "field":
        return Field(**inner)
    return {name: _from_json(part) for name, part in inner.items()}
