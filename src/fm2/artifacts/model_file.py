"""The file of a trained model: weights, schema and vocabularies. Reading it needs no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import Stored, open_arrays
from fm2.data.vocabulary import ARRAYS, Vocabulary, checked
from fm2.errors import Fm2Error
from fm2.schema import Schema

MODEL = "model.safetensors"
FORMAT, VERSION = "fm2 model", 1


@dataclass(frozen=True)
class ModelFile:
    """What a file says of its model, and the arrays of its weights.

    ``counts`` tells how many parameters the model has, and how many operations a prediction takes; older files do not.
    """

    config: dict[str, Any]
    schema: Schema
    vocabularies: Sequence[Vocabulary]
    metrics: dict[str, Any]
    counts: dict[str, int]
    arrays: Stored

    def weights(self, name: str, shape: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Give the weights of that name, which have to have this shape; the file may be anyone's."""
        values = self.arrays[f"model.{name}"]
        expected = values.shape if shape is None else tuple(shape)
        if values.shape != expected or values.dtype != np.float32:
            raise ValueError(f"{name} is {values.dtype} {list(values.shape)}, not float32 {list(expected)}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has entries that are no numbers")
        return values


def _why_none(path: Path) -> str:
    """Say why there is no model in a place, and where one is."""
    if path.is_file():
        return f"{path} is a file; this needs the run, the directory that fm2 train made"
    within = sorted(path.glob(f"*/{MODEL}"))
    if within:
        return f"{path} has no trained model of its own, but there are runs in it, such as {within[0].parent}"
    there = "" if path.exists() else ", for it is not there"
    return f"{path} has no trained model ({MODEL}){there}; fm2 train makes one"


def check_model(path: Path) -> None:
    """Refuse a place that has no trained model."""
    if not (path / MODEL).is_file():
        raise Fm2Error(_why_none(path))


@contextlib.contextmanager
def open_model(run: str | Path) -> Iterator[ModelFile]:
    """Open the model file of a run; whatever is wrong with it, or with what is made of it, is one clear error."""
    path = Path(run)
    check_model(path)
    with open_arrays(path / MODEL) as (arrays, values):
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            raise Fm2Error(f"{path}: {MODEL} has the format {values['format']} {values['version']}")
        schema = Schema.from_dict(values["schema"])
        vocabularies = [
            checked({name: arrays[f"vocabulary.{index}.{name}"] for name in ARRAYS})
            for index in range(len(schema.fields))
        ]
        _check_sizes(values["model"], schema, vocabularies)
        metrics, counts = dict(values["metrics"]), dict(values.get("counts", {}))
        yield ModelFile(values["model"], schema, vocabularies, metrics, counts, arrays)


def _check_sizes(config: dict[str, Any], schema: Schema, vocabularies: Sequence[Vocabulary]) -> None:
    """Refuse a model whose parts do not fit each other."""
    if config["field_sizes"] != [len(vocabulary) for vocabulary in vocabularies]:
        raise ValueError("the vocabularies have other sizes than the model's fields")
    for field, vocabulary in zip(schema.fields, vocabularies, strict=True):
        if bool(vocabulary.hashed) != bool(field.hash_bits) or not np.isfinite(vocabulary.boundaries).all():
            raise ValueError(f"the vocabulary of the field '{field.name}' does not fit its schema")
