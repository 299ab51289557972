"""What a second training needs of a first one: its settings, its features' frequencies, a model to start from."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.model_file import MODEL
from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.metrics import evaluate, sigmoid
from fm2.files import atomic_file, write_errors
from fm2.models import FactorizationMachine
from fm2.training.backend import to_numpy
from fm2.training.inputs import feature_counts
from fm2.training.run import SETTINGS, Run, save_model

Counts = NDArray[np.float64]

# A trained model is at its best, and at the rates that brought it there it leaves that again: on Criteo's small log,
# models projected at 0.95 or pruned to 0.3 came out worse than they began. Shares from 0.03 to 0.3 are much alike.
GENTLY = 0.1
TABLE = "table.json"


def settings_of(run: Run, gently: bool) -> dict[str, Any]:
    """Give the settings that a run was trained with, but for the shape of its model, and how gently that was done.

    ``gently`` scales the rates down, for a training that goes on from what is learned.
    """
    if not (run.path / SETTINGS).is_file():
        raise Fm2Error(
            f"{run.path} has no {SETTINGS}, so how it was trained is not known; put the file beside its model"
        )
    own = ("model", "dim", "learning_rate_scale")
    found = {name: value for name, value in read_settings(run.path / SETTINGS).items() if name not in own}
    return {**found, "learning_rate_scale": GENTLY if gently else 1.0}


def counts_of(run: Run, dataset: Dataset) -> list[Counts]:
    """Tell how often each of a model's features occurs in training rows, field by field; the unknown one is the first.

    The rows may be another day's: values are found again by their text.
    """
    sizes = dataset.field_sizes
    every = np.split(feature_counts(dataset, dataset.vocabularies), np.cumsum(sizes)[:-1])
    id_map = run.id_map(dataset) or [np.arange(size, dtype=np.int32) for size in sizes]
    return [
        np.bincount(own, counts, minlength=size).astype(np.float64)
        for own, counts, size in zip(id_map, every, run.model.field_sizes, strict=True)
    ]


@contextlib.contextmanager
def as_run(model: FactorizationMachine, run: Run, near: Path) -> Iterator[Path]:
    """Keep a model that was made of a run's as a run of its own for a while, for a training to start from.

    Made again of the same run it is the same file, so that a training which was interrupted can be resumed.
    """
    with write_errors(near, "train"):
        near.mkdir(parents=True, exist_ok=True)
        room = tempfile.TemporaryDirectory(prefix=".fm2-start-", dir=near)
    with room as name:
        weights = {key: to_numpy(parameter) for key, parameter in model.named_parameters()}
        save_model(Path(name) / MODEL, model, weights, run.encoder.schema, run.encoder.vocabularies, run.metrics)
        yield Path(name)


def measured_split(dataset: Dataset) -> str:
    """Name the rows that models are measured on: those of test, or where there are none, of validation."""
    return "test" if len(dataset.test) else "validation"


def measure(run: Run, dataset: Dataset, logits: NDArray[np.float32] | None = None) -> dict[str, Any]:
    """Give a model's size and quality, as the paper's table 8 has them; ``logits`` are the model's, if they are known.

    Operations are those of a compiled model: an FmFM's with cached vectors, an FM's with each embedding's own square in
    its linear weight.
    """
    model, split = run.model, measured_split(dataset)
    assert isinstance(model, FactorizationMachine)
    labels = dataset.split(split).labels
    found = evaluate(labels, sigmoid(logits_of(run, dataset) if logits is None else logits).astype(np.float32))
    return {
        "dimension": float(np.mean(model.embedding.dims)),
        "flops": min(model.flops_by_plan().values()),
        "split": split,
        "auc": found["auc"],
        "log_loss": found["log_loss"],
    }


def logits_of(run: Run, dataset: Dataset) -> NDArray[np.float32]:
    """Give a model's logits of the rows that it is measured on."""
    return run.logits(dataset.split(measured_split(dataset)).ids, run.id_map(dataset))


def compare_all(
    command: str,
    kept: str,
    first: Callable[[], dict[str, Any]],
    out: Path,
    values: Sequence[float],
    make: Callable[[Any, Path, bool], dict[str, Any]],
    resume: bool,
    overwrite: bool,
) -> list[dict[str, Any]]:
    """Make a run of every value of what is ``kept``, in a directory of its own; give rows of what was measured.

    ``make`` is told the value, the run's directory and whether the run is to be resumed. The first row is the first
    model's, which ``first`` gives. The rows are written to ``table.json`` as well.
    """
    places = {value: out / f"{kept}-{value:g}" for value in values}
    for one, other in itertools.combinations(places, 2):
        if places[one] == places[other]:
            raise Fm2Error(f"{command}: {one} and {other} would both be {places[one]}; leave one of them out")
    if (out / SETTINGS).is_file():
        raise Fm2Error(f"{command}: {out} is a run itself; several runs need a directory of their own")
    for place in places.values():
        if place.exists() and not (resume or overwrite):
            raise Fm2Error(f"{command}: {place} is there already; --resume goes on with it, --overwrite replaces it")
    rows: list[dict[str, Any]] = [{kept: None, **first()}]
    for value, place in places.items():
        again = resume and (place / SETTINGS).is_file()
        rows.append({kept: value, "run": str(place), **make(value, place, again)})
        with atomic_file(out / TABLE) as partial:
            partial.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return rows
