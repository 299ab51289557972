"""The runs of a comparison: each is trained, evaluated on the same rows and stored as a row of the results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import HISTORY, SETTINGS, read_history
from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.errors import reason_of
from fm2.evaluation import metrics
from fm2.evaluation.evaluate import score_calibrated
from fm2.studies.comparison.plan import Training
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.studies.execution.jobs import Jobs, LostRun, map_runs, open_once
from fm2.studies.result_files import PREDICTIONS
from fm2.studies.statistics import PredictionFiles
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train
from fm2.training.without_effect import chosen_settings


@dataclass(frozen=True)
class _Task:
    """A run of a comparison: its training and dataset, and the seconds that it has taken before."""

    path: Path
    run: str
    training: Training
    resume: bool
    spent: float
    data: Dataset | Path
    split: str

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.training.settings.model

    def row(self, seconds: float) -> dict[str, Any]:
        """Return the row of the run without any results."""
        row: dict[str, Any] = {**dict.fromkeys(COLUMNS), "model": self.model, "seed": self.training.settings.seed}
        return {**row, "run": self.run, "seconds": round(self.spent + seconds, 3)}

    def failed(self, error: Exception, seconds: float) -> tuple[dict[str, Any], Exception]:
        """Return the row of a run that failed, and the exception."""
        return self.row(seconds) | {"error": reason_of(error)}, error


def train_all(
    comparison: Comparison,
    trainings: Mapping[str, tuple[Training, bool]],
    dataset: Dataset,
    jobs: Jobs,
    watch: Callable[[TrainingProgress], None],
    on_start: Callable[[str], None],
    on_result: Callable[[dict[str, Any], Exception | None], None],
) -> None:
    """Train and evaluate what is left, and store the row of each run as soon as it ends."""
    data = dataset if jobs.is_sequential else dataset.path.resolve()
    tasks = {}
    for run, (training, resume) in trainings.items():
        before = comparison.row(run)
        if resume and before:
            comparison.spent.setdefault(run, before["seconds"] or 0.0)
        spent = comparison.spent.get(run, 0.0)
        tasks[run] = _Task(comparison.path.resolve(), run, training, resume, spent, data, comparison.split)
    begun: dict[str, float] = {}

    def begin(run: str) -> None:
        on_start(run)
        begun[run] = time.perf_counter()

    try:
        with contextlib.closing(map_runs(_train, tasks, jobs, watch, begin)) as results:
            for run, result in results:
                seconds = time.perf_counter() - begun.pop(run)
                row, error = tasks[run].failed(result, seconds) if isinstance(result, LostRun) else result
                comparison.put(row)
                on_result(row, error)
    except BaseException:  # interrupted: keep the time spent so far for the resumed runs
        for run, start in begun.items():
            comparison.spent[run] = round(tasks[run].spent + time.perf_counter() - start, 3)
        comparison.save()
        raise


def _train(task: _Task, watch: Callable[[TrainingProgress], None]) -> tuple[dict[str, Any], Exception | None]:
    """Train and evaluate one model; return its row, and the exception if it failed."""
    start = time.perf_counter()
    options = {**task.training.changes, "resume": task.resume, "overwrite": not task.resume, "callback": watch}
    try:
        dataset = open_once(task.data)
        with chosen_settings(()):
            trained = train(task.model, dataset, task.path / task.run, **options)
        row = task.row(time.perf_counter() - start)
        return row | _evaluate(trained, dataset, task.split, PredictionFiles(task.path / PREDICTIONS)), None
    except Exception as error:  # one failed model must not stop the others
        return task.failed(error, time.perf_counter() - start)


def _evaluate(run: Run, dataset: Dataset, split: str, files: PredictionFiles) -> dict[str, Any]:
    """Return the costs and metrics of a run, and whether it would gain from more epochs; keep its predictions."""
    measured, model = predict_and_measure(run, dataset, split, files), run.model
    return {
        "parameters": model.n_parameters,
        "flops": model.flops(),
        "flops_cached": model.flops_by_plan().get("cached"),
        "auc": measured["auc"],
        "log_loss": measured["log_loss"],
        **end_of_training(run.path),
    }


def end_of_training(run: Path) -> dict[str, Any]:
    """Return the best epoch of a run, and whether more epochs would have been better, by column of the results."""
    history, settings = read_history(run / HISTORY), read_settings(run / SETTINGS)
    best_epochs = [entry["epoch"] for entry in history if entry["best"]]
    best_epoch = best_epochs[-1] if best_epochs else None
    settled = not history or history[-1].get("settled", True)
    constant = settings.get("schedule", "constant") == "constant"
    return {
        "best_epoch": None if best_epoch is None else round(best_epoch, 4),
        "unsettled": not settled,
        "unfinished": settled and best_epoch == settings["epochs"] and constant,
    }


def predict_and_measure(run: Run, dataset: Dataset, split: str, files: PredictionFiles) -> dict[str, Any]:
    """Evaluate a run on a split, and write its predictions to a file named after the run."""
    scores = score_calibrated(run, dataset, split)
    probabilities = scores.probabilities(run.calibration)
    files.save(run.path.name, probabilities)
    return metrics.evaluate(scores.labels, probabilities, scores.weights)
