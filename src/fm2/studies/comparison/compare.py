"""``fm2.compare``: several models, trained and tested alike, in one table."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fm2.artifacts.settings import Settings, read_settings
from fm2.compression.retraining import measured_split
from fm2.data.dataset import Dataset
from fm2.data.row_values import read_row_values
from fm2.errors import Fm2Error, printable
from fm2.evaluation import metrics
from fm2.files import directory_lock
from fm2.models.registry import get_spec, is_model
from fm2.studies.comparison.catalog import chosen
from fm2.studies.comparison.plan import left_out, settings_for, state_of
from fm2.studies.comparison.results import COLUMNS, CSV, JSON, Comparison
from fm2.training.inputs import fingerprint_of
from fm2.training.loop import TrainingProgress, check_splits
from fm2.training.run import HISTORY, SETTINGS, Run, read_history
from fm2.training.train import train


def compare(
    data: Dataset | str | Path,
    out: str | Path,
    models: str | Sequence[str] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    truth: ArrayLike | str | Path | None = None,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    begin: Callable[[str], None] = lambda run: None,
    tell: Callable[[dict[str, Any], Exception | None], None] = lambda row, error: None,
    **settings: Any,
) -> Comparison:
    """Train models on a data set and measure all of them on its test rows; give the table, which is in ``out`` too.

    ``models`` are names, or ``all``, ``shallow`` (the paper's seven, which is the default) or ``deep``; ``seeds`` are
    numbers, or how many, from 0 on. ``settings`` are those of :func:`fm2.train`, for all models that have them; ``own``
    has those of single models. ``truth`` has the true probability of every row of the log, or names an .npy file.

    Each training is a run in ``out``, called after its model and seed: ``fmfm-0``. A model that fails has the reason in
    its row, as ``error``, and the others go on. With ``resume``, what is finished is kept and the rest gone on with;
    the settings are those of before unless others are given, and models and seeds are added. ``begin`` is told the name
    of a run when it begins, ``tell`` the row that came of it, and the exception if it failed.
    """
    if resume and overwrite:
        raise Fm2Error("compare: --resume goes on with a comparison and --overwrite replaces it; choose one of them")
    dataset, path = data if isinstance(data, Dataset) else Dataset.open(data), Path(out)
    _check_place(path, resume, overwrite)
    check_splits(dataset, "compare", measured_split(dataset))
    comparison = _begun(path, dataset, resume, models, seeds, settings, own or {})
    if truth is not None:
        comparison.truth = measure_truth(truth, dataset, comparison.split)
    left_out(comparison.models, comparison.settings)
    trainings = _trainings(comparison, (len(dataset.train), len(dataset.field_sizes)))
    with directory_lock(path, "compare", "another comparison"):
        if overwrite:
            _clear(path)
        rows = {run: comparison.row(each.model, each.seed) for run, each in trainings.items()}
        states = {run: state_of(path / run, rows[run], each) for run, each in trainings.items()}
        comparison.save()
        for run, each in trainings.items():
            if states[run] != "finished":
                row = rows[run]
                if row and states[run] == "unfinished":
                    comparison.spent.setdefault(run, row["seconds"] or 0.0)
                begin(run)
                row, error = _train(comparison, each, dataset, states[run] == "unfinished", watch)
                comparison.put(row)
                tell(row, error)
    return comparison


def measure_truth(truth: ArrayLike | str | Path, dataset: Dataset, split: str = "test") -> dict[str, float]:
    """Measure the true probabilities of a data set's rows on a split: no model can expect to be better."""
    values = read_row_values("compare", "true probabilities", truth, dataset, np.float64)[dataset.split(split).rows]
    found = metrics.evaluate(dataset.split(split).labels, values)
    return {name: found[name] for name in ("auc", "log_loss")}


def _check_place(path: Path, resume: bool, overwrite: bool) -> None:
    """Refuse to write where something else is, or over a comparison unasked."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        if resume:
            raise Fm2Error(f"compare: there is no comparison to resume in {path}")
        return
    if not (path / JSON).is_file():
        raise Fm2Error(f"compare: {path} holds something else (it has no {JSON}); give another --out")
    if not (resume or overwrite):
        raise Fm2Error(f"compare: {path} is there already; --resume goes on with it, --overwrite replaces it")


def _begun(
    path: Path,
    dataset: Dataset,
    resume: bool,
    models: str | Sequence[str] | None,
    seeds: int | Sequence[int] | None,
    settings: dict[str, Any],
    own: Mapping[str, Mapping[str, Any]],
) -> Comparison:
    """Give the comparison as it begins: of nothing, or of what is there, with what is given changed."""
    split, given = measured_split(dataset), {name: dict(some) for name, some in own.items()}
    before = Comparison.open(path) if resume else None
    if before is None:
        names, numbers = chosen("shallow" if models is None else models), _seeds(1 if seeds is None else seeds)
        return Comparison(
            path, str(dataset.path.resolve()), fingerprint_of(dataset), split, names, numbers, settings, given
        )
    if before.fingerprint != fingerprint_of(dataset):
        raise Fm2Error(f"compare: {path} compares on another data set, {before.data}; give the same to resume")
    before.models = list(dict.fromkeys([*before.models, *([] if models is None else chosen(models))]))
    before.seeds = sorted({*before.seeds, *([] if seeds is None else _seeds(seeds))})
    before.settings |= settings
    for name, some in before.own.items():  # what is given now comes before what single models had
        before.own[name] = {key: value for key, value in some.items() if key not in settings}
    before.own |= {name: before.own.get(name, {}) | some for name, some in given.items()}
    return before


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or any(type(seed) is not int or seed < 0 for seed in numbers):
        raise Fm2Error(f"compare: seeds is {seeds!r}; it is how many, at least 1, or several numbers like [0, 1, 2]")
    return numbers


def _trainings(comparison: Comparison, size: tuple[int, int]) -> dict[str, Settings]:
    """Give the settings of every training by the name of its run; whatever is wrong in any is told before all work."""
    for name in comparison.own:
        get_spec(name, "compare")
    every = [
        settings_for(model, seed, size, comparison.settings, comparison.own)
        for model in comparison.models
        for seed in comparison.seeds
    ]
    return {_run_name(each): each for each in every}


def _run_name(settings: Settings) -> str:
    return f"{settings.model}-{settings.seed}"


def _clear(path: Path) -> None:
    """Remove the runs of a comparison that is replaced, and its tables; whatever else is there stays."""
    for place in path.iterdir():
        model = re.fullmatch(r"(\w+)-\d+", place.name)
        if model and is_model(model[1]) and (place / SETTINGS).is_file():
            shutil.rmtree(place)
    for name in (JSON, CSV):
        (path / name).unlink(missing_ok=True)


def _train(
    comparison: Comparison,
    settings: Settings,
    dataset: Dataset,
    resume: bool,
    watch: Callable[[TrainingProgress], None],
) -> tuple[dict[str, Any], Exception | None]:
    """Train one model and measure it; give its row of the table, and why it failed if it did."""
    name, begin = _run_name(settings), time.perf_counter()
    row = {**dict.fromkeys(COLUMNS), "model": settings.model, "seed": settings.seed, "run": name}
    options = {key: value for key, value in settings.used().items() if key != "model"}

    def seconds() -> float:
        return round(comparison.spent.get(name, 0.0) + time.perf_counter() - begin, 3)

    try:
        place = comparison.path / name
        run = train(settings.model, dataset, place, resume=resume, overwrite=not resume, callback=watch, **options)
        row["seconds"] = seconds()
        return row | _measure(run, dataset, comparison.split), None
    except Exception as failed:  # whatever it is, it is this model's, and the others can be trained
        told = str(failed) if isinstance(failed, Fm2Error) else f"{type(failed).__name__}: {failed}"
        return row | {"seconds": seconds(), "error": printable(told)}, failed
    except BaseException:  # interrupted: what was spent counts when it goes on
        comparison.spent[name] = seconds()
        comparison.save()
        raise


def _measure(run: Run, dataset: Dataset, split: str) -> dict[str, Any]:
    found = run.evaluate(dataset, split)
    history, settings = read_history(run.path / HISTORY), read_settings(run.path / SETTINGS)
    best = [entry["epoch"] for entry in history if entry["best"]]
    settled = not history or history[-1].get("settled", True)
    return {
        "parameters": run.model.n_parameters,
        "flops": run.model.flops(),
        "flops_cached": run.model.flops_by_plan().get("cached"),
        "auc": found["auc"],
        "log_loss": found["log_loss"],
        "best_epoch": round(best[-1], 4) if best else None,
        "unsettled": not settled,
        "unfinished": settled
        and bool(best)
        and best[-1] == settings["epochs"]
        and settings.get("schedule", "constant") == "constant",
    }
