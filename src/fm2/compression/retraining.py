"""What ``fm2.shrink``, ``fm2.prune`` and ``fm2.cut`` share: train a smaller model that is derived from a run."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.run_directory import SETTINGS, check_run_output
from fm2.artifacts.settings import read_run_settings
from fm2.compression.moments import Occurrences
from fm2.compression.spectrum import sample_rows
from fm2.data.dataset import Dataset
from fm2.data.rows import Lists
from fm2.errors import Fm2Error, name_locations
from fm2.evaluation.id_mapping import IdMap, map_ids
from fm2.evaluation.metrics import evaluate, sigmoid
from fm2.files import temporary_directory, write_errors, write_text
from fm2.models import FactorizationMachine
from fm2.models.registry import specs
from fm2.training.inputs import feature_counts
from fm2.training.run import Run

# A trained model is at its optimum, and the learning rates that led there would lead away from it: on Criteo's small
# log, models projected at 0.95 or pruned to 0.3 ended worse than they started. Scales from 0.03 to 0.3 perform alike.
LOW_RATE = 0.1
TABLE = "table.json"


def check_matrices(operation: str, run: Run, full: bool = False) -> FactorizationMachine:
    """Return the model of a run; raise an error if it does not learn field matrices, or no ``full`` ones."""
    model = run.model
    names = [spec.name for spec in specs() if (spec.has_full_matrices if full else spec.learns_field_matrices)]
    if not isinstance(model, FactorizationMachine) or model.name not in names:
        raise Fm2Error(f"{operation}: expected a run of {', '.join(names)}, got {model.name} in {run.path}")
    return model


def retraining_settings(run: Run, low_rate: bool = True) -> dict[str, Any]:
    """Return the settings of a run without those that shape its model; ``low_rate`` scales the learning rates down."""
    if not (run.path / SETTINGS).is_file():
        raise Fm2Error(f"{run.path} has no {SETTINGS}, so its training settings are unknown; restore that file")
    stored = read_run_settings(run.path / SETTINGS)
    settings = {name: value for name, value in stored.items() if name not in ("model", "dim")}
    return {**settings, "learning_rate_scale": LOW_RATE if low_rate else 1.0}


def find_occurrences(run: Run, dataset: Dataset, operation: str = "evaluate") -> list[Occurrences]:
    """Return how often each of a model's features occurs in the training rows, field by field, the unknown one first.

    A list field has the lists of some of the training rows instead. The dataset may be another one than the model was
    trained on; its values are matched by their text.
    """
    id_map = run.id_map(dataset, operation)
    sizes = dataset.field_sizes
    lists = _sample_lists(dataset, id_map)
    counts = np.split(feature_counts(dataset, dataset.vocabularies), np.cumsum(sizes)[:-1])
    occurrences: list[Occurrences] = []
    for field, size in enumerate(run.model.field_sizes):
        if field in lists:
            occurrences.append(lists[field])
            continue
        ids = np.arange(sizes[field]) if id_map is None else id_map.ids[field]
        occurrences.append(np.bincount(ids, counts[field], minlength=size).astype(np.float64))
    return occurrences


def _sample_lists(dataset: Dataset, id_map: IdMap | None) -> Mapping[int, Lists]:
    rows, _ = sample_rows(dataset.train)
    return map_ids(rows, id_map).compact().lists if rows.lists else {}


@contextlib.contextmanager
def temporary_run(model: FactorizationMachine, run: Run, out: Path) -> Iterator[Path]:
    """Save a model that was derived from a run as a run of its own, next to ``out``, for a training to start from.

    Deriving it again writes the same bytes, so that an interrupted training can be resumed.
    """
    with contextlib.ExitStack() as stack:
        parent = out.resolve().parent
        with write_errors(parent, "train"):
            parent.mkdir(parents=True, exist_ok=True)
            directory = stack.enter_context(temporary_directory(out))
        Run(run.path, model, run.encoder, run.metrics, negative_rate=run.negative_rate).save(directory)
        yield directory


def measured_split(dataset: Dataset) -> str:
    """Return the split that models are measured on: test, or validation if test is empty."""
    return "test" if len(dataset.test) else "validation"


def measure(run: Run, dataset: Dataset, logits: NDArray[np.float32] | None = None) -> dict[str, Any]:
    """Return the size and the quality of a model, as in the paper's table 8; pass its ``logits`` if they are known.

    The operations are those of the compiled model: an FmFM with cached products, an FM with the square of each
    embedding in its linear weight.
    """
    model, split = run.model, measured_split(dataset)
    assert isinstance(model, FactorizationMachine)
    probabilities = sigmoid(split_logits(run, dataset) if logits is None else logits).astype(np.float32)
    rows = dataset.split(split)
    metrics = evaluate(rows.labels, probabilities, rows.weights)
    return {
        "dimension": float(np.mean(model.embedding.dims)),
        "flops": min(model.flops_by_plan().values()),
        "split": split,
        "auc": metrics["auc"],
        "log_loss": metrics["log_loss"],
    }


def split_logits(run: Run, dataset: Dataset) -> NDArray[np.float32]:
    """Return a model's logits on the split that models are measured on."""
    return run.logits(dataset.split(measured_split(dataset)).encoded, run.id_map(dataset))


def sweep(
    operation: str,
    option: str,
    values: Sequence[float],
    out: Path,
    first_row: Callable[[], dict[str, Any]],
    make_row: Callable[[Any, Path, bool], dict[str, Any]],
    resume: bool,
    overwrite: bool,
) -> list[dict[str, Any]]:
    """Train one run per value of an option, each in its own directory in ``out``, and return a table of all models.

    ``first_row`` measures the model they are derived from. ``make_row`` trains and measures one of them; its arguments
    are the value, the directory, and whether to resume. The table is also written to ``table.json``.
    """
    paths = {value: out / f"{option}-{value:g}" for value in values}
    for value, other in itertools.combinations(paths, 2):
        if paths[value] == paths[other]:
            raise Fm2Error(f"{operation}: {value} and {other} would both be written to {paths[value]}; remove one")
    if (out / SETTINGS).is_file():
        raise Fm2Error(f"{operation}: {out} is itself a run; several runs need a directory of their own")
    resumed = {value: resume and (path / SETTINGS).is_file() for value, path in paths.items()}
    for value, path in paths.items():
        # Runs that were not started yet are not resumed, but --resume --overwrite is an error in any case.
        check_run_output(operation, path, resumed[value] or (resume and overwrite), overwrite)
    rows: list[dict[str, Any]] = [{option: None, **first_row()}]
    for value, path in paths.items():
        rows.append({option: value, "run": name_locations(str(path)), **make_row(value, path, resumed[value])})
        write_text(out / TABLE, json.dumps(rows, indent=1) + "\n")
    return rows
