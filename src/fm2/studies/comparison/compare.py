"""``fm2.compare``: train several models under the same conditions and collect their test metrics."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.artifacts.run_directory import SETTINGS
from fm2.compression.retraining import measured_split
from fm2.data.dataset import Dataset, read_row_values
from fm2.errors import Fm2Error, Fm2Warning, name_locations
from fm2.evaluation import metrics
from fm2.evaluation.evaluate import targets
from fm2.files import check_output, output_directory, remove_directory, write_errors, write_files
from fm2.models.registry import get_spec, is_model
from fm2.remote.paths import writes
from fm2.studies.comparison.catalog import chosen
from fm2.studies.comparison.plan import Training, ignored_settings, state_of, training_of
from fm2.studies.comparison.results import CSV, DIFFERENCES, JSON, Comparison
from fm2.studies.comparison.runs import predict_and_measure, train_all
from fm2.studies.execution.jobs import Engine, Jobs
from fm2.studies.result_files import PREDICTIONS
from fm2.studies.statistics import measure_statistics
from fm2.training.inputs import check_splits, fingerprint_of
from fm2.training.loop import TrainingProgress
from fm2.training.resolve import log_for_defaults
from fm2.training.run import Run
from fm2.training.without_effect import warn_without_effect


@writes("out")
def compare(
    data: Dataset | str | Path,
    out: str | Path,
    models: str | Sequence[str] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    truth: ArrayLike | str | Path | None = None,
    model_settings: Mapping[str, Mapping[str, Any]] | None = None,
    jobs: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    on_start: Callable[[str], None] = lambda run: None,
    on_result: Callable[[dict[str, Any], Exception | None], None] = lambda row, error: None,
    **settings: Any,
) -> Comparison:
    """Train models on a dataset, evaluate all of them on its test rows, and return the results.

    ``models`` are names, or ``all``, ``shallow`` (the paper's seven models, the default) or ``deep``. ``seeds`` is a
    list of seeds, or their number. ``settings`` are those of :func:`fm2.train`; each applies to all models that have
    it. ``model_settings`` has settings of single models, by name. ``truth`` has the true click probability of every row
    of the log, as an array or an .npy file.

    Each training is a run in ``out``, named after its model and seed, such as ``fmfm-0``. If a training fails, its row
    has the reason in ``error``, and the comparison continues with the next one. ``resume`` keeps finished runs and
    continues the others, with the same settings unless you pass new ones; new models and seeds are added. ``on_start``
    is called with the name of a run before its training, ``on_result`` with its row afterward, and with the exception
    if it failed.

    ``jobs`` trains that many runs at once, each in a process of its own; with ``engine="ray"`` they are tasks of the
    Ray cluster at ``address``. The metrics are those of one run after the other with the same number of threads. The
    ``stage`` of a report that ``watch`` receives is then the name of its run.

    A run is what :func:`fm2.train` makes of the same settings: on logs of 20,000 to 2 million training rows, LR and the
    factorization machines keep the best of several variants on the validation rows.

    At the end, all pairs of models are compared by paired tests on the same rows; see ``statistics`` of the result.
    """
    where = Jobs("compare", jobs, engine, address, settings.get("threads") or 0)
    where.check()
    dataset, path = Dataset.of(data), Path(out)
    policy: Any = {"resume": resume, "overwrite": overwrite}
    check_output("compare", path, "comparison", JSON, **policy)
    check_splits(dataset, "compare", measured_split(dataset))
    if resume:
        comparison = _resume(path, dataset, models, seeds, settings, model_settings or {})
    else:
        comparison = Comparison(
            path,
            data=name_locations(str(dataset.path.resolve())),
            fingerprint=fingerprint_of(dataset),
            split=measured_split(dataset),
            models=chosen("shallow" if models is None else models),
            seeds=_seeds(1 if seeds is None else seeds),
            settings=settings,
            model_settings={name: dict(values) for name, values in (model_settings or {}).items()},
        )
    if truth is not None:
        comparison.truth = measure_truth(truth, dataset, comparison.split)
    ignored_settings(comparison.models, comparison.settings)
    trainings = _trainings(comparison, log_for_defaults(dataset))
    warn_without_effect("compare", dataset, *((each.changes, each.settings) for each in trainings.values()))
    with output_directory("compare", path, "comparison", JSON, "another comparison", **policy):
        if overwrite:
            _remove_results(path)
        states = {run: state_of(path / run, comparison.row(run), each) for run, each in trainings.items()}
        with write_errors(path, "compare"):
            write_files(path, {JSON: comparison.text()}, JSON)
        comparison.save()
        left = {run: (trainings[run], state == "unfinished") for run, state in states.items() if state != "finished"}
        train_all(comparison, left, dataset, where, watch, on_start, on_result)
        if comparison.statistics is None:
            _measure_statistics(comparison, dataset)
    return comparison


def measure_truth(truth: ArrayLike | str | Path, dataset: Dataset, split: str = "test") -> dict[str, float]:
    """Evaluate the true probabilities on a split. No model can expect better metrics."""
    rows = dataset.split(split)
    values = read_row_values("compare", "true probabilities", truth, dataset, np.float64)[rows.rows]
    measured = metrics.evaluate(rows.labels, values, rows.weights)
    return {name: measured[name] for name in ("auc", "log_loss")}


def _resume(
    path: Path,
    dataset: Dataset,
    models: str | Sequence[str] | None,
    seeds: int | Sequence[int] | None,
    settings: dict[str, Any],
    model_settings: Mapping[str, Mapping[str, Any]],
) -> Comparison:
    """Read the comparison in ``path``; add models and seeds, and replace settings."""
    comparison = Comparison.open(path)
    if comparison.fingerprint != fingerprint_of(dataset):
        raise Fm2Error(f"compare: {path} uses another dataset, {comparison.data}; resume with that one")
    added = [] if models is None else chosen(models)
    comparison.models = list(dict.fromkeys([*comparison.models, *added]))
    comparison.seeds = sorted({*comparison.seeds, *([] if seeds is None else _seeds(seeds))})
    comparison.settings |= settings
    before = comparison.model_settings
    for name, values in before.items():  # a new common setting overrides the old ones of single models
        before[name] = {key: value for key, value in values.items() if key not in settings}
    before |= {name: before.get(name, {}) | dict(values) for name, values in model_settings.items()}
    return comparison


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or any(type(seed) is not int or seed < 0 for seed in numbers):
        raise Fm2Error(
            f"compare: seeds must be a positive number of seeds, or distinct seeds such as [0, 1, 2], got {seeds!r}"
        )
    return numbers


def _trainings(comparison: Comparison, log: tuple[int, Sequence[int], float]) -> dict[str, Training]:
    """Return every training by the name of its run, and so find all errors before any work."""
    for name in comparison.model_settings:
        get_spec(name, "compare: settings")
    return {
        f"{model}-{seed}": training_of(model, seed, log, comparison.settings, comparison.model_settings)
        for model in comparison.models
        for seed in comparison.seeds
    }


def _remove_results(path: Path) -> None:
    """Remove the runs and the CSV table of a comparison that is replaced. Its compare.json is replaced later."""
    for directory in path.iterdir():
        model = re.fullmatch(r"(\w+)-\d+", directory.name)
        if model and is_model(model[1]) and (directory / SETTINGS).is_file():
            remove_directory(directory)
    remove_directory(path / PREDICTIONS)
    for name in (CSV, DIFFERENCES):
        (path / name).unlink(missing_ok=True)


def _measure_statistics(comparison: Comparison, dataset: Dataset) -> None:
    """Compare all pairs of models; score runs whose predictions are missing again."""
    (labels, weights), models = targets(dataset, comparison.split), comparison.finished_runs()
    if not models:
        return

    def predictions(run: str) -> NDArray[np.float32]:
        stored = comparison.predictions.load(run, len(labels))
        if stored is None:
            predict_and_measure(Run.open(comparison.path / run), dataset, comparison.split, comparison.predictions)
            stored = comparison.predictions.load(run, len(labels))
        assert stored is not None
        return stored

    try:
        comparison.statistics = measure_statistics(labels, weights, models, predictions)
    except Fm2Error as error:  # too few clicks for a test; the table remains
        warnings.warn(f"compare: no confidence intervals: {error}", Fm2Warning, stacklevel=3)
    comparison.save()
