"""The file of a trained model: weights, schema and vocabularies."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import Saved, Stored, map_array, open_arrays, save_arrays
from fm2.artifacts.run_directory import CALIBRATION, RACE, SETTINGS
from fm2.data.vocabulary import ARRAYS, Vocabulary, check_vocabularies, checked
from fm2.errors import Fm2Error, not_found
from fm2.files import write_errors
from fm2.models.registry import get_spec
from fm2.remote.paths import local_path
from fm2.schema import Schema

if TYPE_CHECKING:  # its module needs torch
    from fm2.models import Model

MODEL = "model.safetensors"
PIECE = 1 << 20  # numbers that are checked at once
FORMAT, VERSION = "fm2 model", 1


@dataclass(frozen=True)
class ModelFile:
    """The content of an open model file.

    ``counts`` has the number of parameters and of operations per prediction; files of older versions lack it.
    ``negative_rate`` is the share of the rows without a click in training, which the bias is corrected for.
    """

    config: dict[str, Any]
    schema: Schema
    vocabularies: Sequence[Vocabulary]
    metrics: dict[str, Any]
    counts: dict[str, int]
    arrays: Stored
    negative_rate: float = 1.0

    def weights(self, name: str, shape: Sequence[int] | None = None, mapped: bool = False) -> NDArray[np.float32]:
        """Return the weights called ``name``; raise ValueError unless they are finite float32 of this shape.

        If they are ``mapped``, the system can drop their pages from memory; changes to them stay in this process.
        """
        values = map_array(self.arrays, f"model.{name}", "c") if mapped else self.arrays[f"model.{name}"]
        expected = values.shape if shape is None else tuple(shape)
        if values.shape != expected or values.dtype != np.float32:
            raise ValueError(f"{name} is {values.dtype} {list(values.shape)}, not float32 {list(expected)}")
        flat = values.reshape(-1)
        if not all(np.isfinite(flat[begin : begin + PIECE]).all() for begin in range(0, len(flat), PIECE)):
            raise ValueError(f"{name} has values that are not finite")
        return values


def save_model(
    path: Path,
    model: Model,
    weights: Saved,
    schema: Schema,
    vocabularies: Sequence[Vocabulary],
    metrics: dict[str, Any],
    negative_rate: float = 1.0,
) -> None:
    """Write a model, with the schema and the vocabularies that encode its input, to one file.

    The calibration of an earlier model in the same directory is removed.
    """
    arrays: dict[str, Any] = {f"model.{name}": values for name, values in weights.items()}
    for index, vocabulary in enumerate(vocabularies):
        for name, dtype in ARRAYS.items():
            arrays[f"vocabulary.{index}.{name}"] = np.asarray(getattr(vocabulary, name), dtype=dtype)
    values = {
        "format": FORMAT,
        "version": VERSION,
        "model": model.config,
        "schema": schema.to_dict(),
        "metrics": metrics,
        "counts": {"parameters": model.n_parameters, "flops": model.flops()},
    }
    if negative_rate != 1:
        values["negative_rate"] = negative_rate
    with write_errors(path, "train"):
        path.with_name(CALIBRATION).unlink(missing_ok=True)
    save_arrays(path, arrays, values)


def check_model(path: Path) -> None:
    """Raise an error if ``path`` is not a run with a trained model."""
    if (path / MODEL).is_file():
        return
    if path.is_file():
        run = f"; did you mean {path.parent}?" if path.name == MODEL else ""
        raise Fm2Error(f"{path} is a file; expected a run, the directory that fm2 train writes{run}")
    if not path.exists():
        raise not_found("run", path, "fm2 train writes one", "directory")
    runs = sorted(path.glob(f"*/{MODEL}"))
    hint = f"did you mean {runs[0].parent}?" if runs else "fm2 train writes one"
    if (path / RACE).is_file() or (path / SETTINGS).is_file():
        hint = "its training has not ended; fm2 train continues it with --resume"
    raise Fm2Error(f"{path} has no trained model ({MODEL}); {hint}")


@contextlib.contextmanager
def open_model(run: str | Path) -> Iterator[ModelFile]:
    """Open the model file of a run. Errors in the body of the ``with`` statement are those of :func:`open_arrays`."""
    path = local_path(run)
    check_model(path)
    with open_arrays(path / MODEL) as (arrays, values):
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            found = f"{path / MODEL} has the format '{values['format']}' {values['version']}"
            raise Fm2Error(f"{found}; this version of fm2 reads '{FORMAT}' {VERSION}")
        schema = Schema.from_dict(values["schema"])
        vocabularies = [
            checked({name: arrays[f"vocabulary.{index}.{name}"] for name in ARRAYS})
            for index in range(len(schema.fields))
        ]
        _check_sizes(values["model"], schema, vocabularies)
        _check_parameters(values["model"], path / MODEL)
        metrics, counts = dict(values["metrics"]), dict(values.get("counts", {}))
        rate = values.get("negative_rate", 1.0)
        if type(rate) not in (int, float) or not 0 < rate <= 1:
            raise ValueError(f"the negative rate is {rate!r}")
        yield ModelFile(values["model"], schema, vocabularies, metrics, counts, arrays, float(rate))


def _check_parameters(config: dict[str, Any], path: Path) -> None:
    """Raise an error if the model has more parameters than the file, before they are allocated."""
    spec = get_spec(config["model"], str(path))
    spec.check_options(config)
    widths = config.get("hidden", ())
    least = sum(before * width for before, width in itertools.pairwise(widths))
    if spec.count_parameters:
        least = max(least, spec.count_parameters({**config, "pruned": []}))
    if least * np.dtype(np.float32).itemsize > path.stat().st_size:
        raise ValueError("its model has more parameters than the file")


def _check_sizes(config: dict[str, Any], schema: Schema, vocabularies: Sequence[Vocabulary]) -> None:
    """Raise ValueError if the model, the schema and the vocabularies contradict each other."""
    if config["field_sizes"] != [len(vocabulary) for vocabulary in vocabularies]:
        raise ValueError("the sizes of the vocabularies differ from the model's field sizes")
    check_vocabularies(vocabularies, schema)
