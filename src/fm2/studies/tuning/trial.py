"""One trial of a search: a training that stops early if it cannot become the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import HISTORY, SETTINGS, read_history
from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.files import remove_directory
from fm2.studies.execution.jobs import open_once
from fm2.studies.tuning.study import Evaluations, Proposal
from fm2.training.loop import TrainingProgress
from fm2.training.tracking import metrics_of
from fm2.training.train import train
from fm2.training.without_effect import chosen_settings

WITHOUT_EFFECT = ("threads", "device")  # settings that do not change the result of a training


class Pruned(Exception):
    """Ends the training of a trial that will not be the best."""


class OutOfTime(KeyboardInterrupt):
    """Ends the training of a trial when the time of the search is up; a resumed search continues it."""


@dataclass(frozen=True)
class Task:
    """A trial to train: its run, its settings and other options of the training, and when the search has to end.

    The ``deadline`` is one of ``time.time()``, which all machines of a cluster share.
    """

    proposal: Proposal
    run: Path
    options: Mapping[str, Any]
    data: Dataset | Path
    deadline: float


def train_trial(task: Task, watch: Callable[[TrainingProgress], None]) -> dict[str, Any] | None:
    """Train, or continue an interrupted training; return how it ended, None if the time is up."""
    start = time.perf_counter()
    evaluations = Evaluations(task.proposal, task.options["evaluations_per_epoch"])
    try:
        outcome = _train(task, evaluations, watch)
    except OutOfTime:
        return None
    return {**outcome, "seconds": time.perf_counter() - start, "evaluations": evaluations.values}


def _train(task: Task, evaluations: Evaluations, watch: Callable[[TrainingProgress], None]) -> dict[str, Any]:
    resume = settings_of(task.run) == with_effect(
        {name: value for name, value in task.options.items() if name != "row_weights"}
    )
    if not resume:
        remove_directory(task.run)
    for evaluation in read_history(task.run / HISTORY):
        evaluations.add(evaluation)

    def callback(report: TrainingProgress) -> None:
        watch(report)
        if report.evaluated and report.evaluation and evaluations.add(report.evaluation):
            raise Pruned
        if time.time() >= task.deadline:
            raise OutOfTime

    try:
        with chosen_settings(()):
            train(data=open_once(task.data), out=task.run, resume=resume, callback=callback, **task.options)
    except Pruned:
        return {"state": "pruned", **_best_evaluation(task.run)}
    except Fm2Error as error:
        # Bad settings, such as a learning rate that is too high, fail one trial. The defaults, and the disk, have to
        # work.
        if task.proposal.number == 0 or isinstance(error.__cause__, OSError):
            raise
        return {"state": "failed", "error": str(error)}
    return {"state": "finished", **_best_evaluation(task.run)}


def with_effect(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine the result of a training."""
    return {name: value for name, value in settings.items() if name not in WITHOUT_EFFECT}


def settings_of(run: Path) -> dict[str, Any] | None:
    """Return the settings of a run that determine its result; None if there is no run."""
    return with_effect(read_settings(run / SETTINGS)) if (run / SETTINGS).is_file() else None


def _best_evaluation(run: Path) -> dict[str, Any]:
    """Return the metrics of a run's best evaluation, and its epoch."""
    best = [evaluation for evaluation in read_history(run / HISTORY) if evaluation["best"]][-1]
    return {"metrics": metrics_of(best), "epoch": best["epoch"]}
