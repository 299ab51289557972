"""``fm2.tune``: search for the settings with the best validation metric."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fm2.artifacts.run_directory import HISTORY, SETTINGS, read_history
from fm2.artifacts.settings import read_settings
from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, require
from fm2.files import output_directory, remove_directory, write_errors, write_files, write_text
from fm2.models.choices import Metric
from fm2.remote.paths import writes
from fm2.studies.tuning.plan import PLAN, Plan, find_plan, plan_files
from fm2.studies.tuning.study import RunningTrial, Study, Trial
from fm2.training.inputs import fingerprint_of_weights, read_row_weights
from fm2.training.loop import TrainingProgress
from fm2.training.tracking import metrics_of
from fm2.training.train import train

BEST, BEST_RUN, CURRENT = "best.toml", "best", "trial"
WITHOUT_EFFECT = ("threads", "device")  # settings that do not change the result of a training


@dataclass(frozen=True)
class Tuning:
    """The result of a search: its trials in order, the best one, and the best settings.

    ``settings`` are keyword arguments of :func:`fm2.train`; ``best.toml`` has them as well.
    """

    path: Path
    metric: Metric
    trials: list[Trial]
    best: Trial | None
    settings: dict[str, Any]
    _study: Study

    def importances(self) -> dict[str, float]:
        """Return how much each setting influenced the metric. The shares add up to 1."""
        return self._study.importances()


class Pruned(Exception):
    """Ends the training of a trial that will not be the best."""


@writes("out")
def tune(
    model: str,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    trials: int = 20,
    metric: Metric | None = None,
    fix: Mapping[str, Any] | None = None,
    space: Mapping[str, Any] | str | Path | None = None,
    seed: int | None = None,
    threads: int = 0,
    timeout: float | None = None,
    resume: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    on_trial: Callable[[list[Trial]], None] = lambda trials: None,
) -> Tuning:
    """Search for the settings of a model that have the best validation metric on a dataset.

    The first trial uses the model's defaults, or the nearest point of your own ``space``. Each trial is a training; it
    stops early if it cannot become the best, and its score is its best ``metric`` on validation (default: log loss).
    ``fix`` has settings that all trials share. ``space`` replaces the model's search space: lists of values, or ranges
    such as ``{"low": 0.001, "high": 0.01, "log": True}``, or a TOML file with them.

    ``resume`` continues a search until it has ``trials`` trials in total. ``timeout`` stops it after that many seconds.
    ``on_trial`` is called after each trial with all trials so far. The directory ``out`` has the best settings in
    ``best.toml`` and the best run in ``best``.
    """
    dataset = Dataset.of(data)
    check_threads("tune", threads)
    if trials < 1:
        raise Fm2Error(f"tune: trials must be at least 1, got {trials}")
    path = Path(out)
    weights = None if row_weights is None else read_row_weights(row_weights, dataset, "tune")
    fingerprint = fingerprint_of_weights(weights)
    arguments = {"metric": metric, "seed": seed, "fix": fix, "space": space, "row_weights": fingerprint}
    plan = find_plan(path, resume, model, dataset, arguments)
    require("optuna", "tune", "fm2 tune")
    with output_directory("tune", path, "search", PLAN, "another search", resume=resume, overwrite=None):
        with write_errors(path, "tune"):
            write_files(path, plan_files(plan, dataset, fingerprint), PLAN)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        search = _Search(path, plan, dataset, {"threads": threads, "row_weights": weights}, watch, deadline)
        search.run(trials, on_trial)
        return search.result()


@dataclass
class _Search:
    """Runs the trials in one directory, and keeps the run of the best trial in another."""

    path: Path
    plan: Plan
    dataset: Dataset
    options: dict[str, Any]
    watch: Callable[[TrainingProgress], None]
    deadline: float

    def __post_init__(self) -> None:
        self.study = Study(self.path, self.plan)

    def run(self, trials: int, on_trial: Callable[[list[Trial]], None]) -> None:
        self._keep_best()
        while len(self.study.trials()) < trials and not self._is_late():
            try:
                self._run_trial(self.study.ask())
            except KeyboardInterrupt:
                if not self._is_late():
                    raise
                break  # a resumed search continues this trial
            self._keep_best()
            remove_directory(self.path / CURRENT)
            on_trial(self.study.trials())

    def _is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def _settings(self, trial: Trial | RunningTrial) -> dict[str, Any]:
        return _with_effect(self.plan.settings(trial.tried).used())

    def _run_trial(self, trial: RunningTrial) -> None:
        """Train with the proposed settings, or copy the outcome of an earlier trial with the same settings."""
        for earlier in self.study.trials():
            if earlier.tried == trial.tried:
                self.study.tell(trial, replace(earlier, number=trial.number, seconds=0.0))
                return
        start = time.perf_counter()
        outcome = self._train(trial)
        seconds = time.perf_counter() - start
        self.study.tell(trial, Trial(trial.number, trial.tried, self.plan.metric, seconds=seconds, **outcome))

    def _train(self, trial: RunningTrial) -> dict[str, Any]:
        """Train, or continue an interrupted training; return how it ended."""
        settings, run = self._settings(trial), self.path / CURRENT
        resume = _settings_of(run) == settings
        if not resume:
            remove_directory(run)
        for evaluation in read_history(run / HISTORY):
            trial.report(evaluation)
        try:
            callback = self._watch_trial(trial)
            train(data=self.dataset, out=run, resume=resume, callback=callback, **settings, **self.options)
        except Pruned:
            return {"state": "pruned", **_best_evaluation(run)}
        except Fm2Error as error:
            # Bad settings, such as a learning rate that is too high, fail one trial. The defaults, and the disk, have
            # to work.
            if trial.number == 0 or isinstance(error.__cause__, OSError):
                raise
            return {"state": "failed", "error": str(error)}
        return {"state": "finished", **_best_evaluation(run)}

    def _watch_trial(self, trial: RunningTrial) -> Callable[[TrainingProgress], None]:
        """Return a callback that ends a training if the trial is hopeless or the time is up."""

        def watch(report: TrainingProgress) -> None:
            self.watch(report)
            if report.evaluated and report.evaluation and trial.report(report.evaluation):
                raise Pruned
            if self._is_late():
                raise KeyboardInterrupt

        return watch

    def _keep_best(self) -> None:
        """Move the run of the best trial to its place, and write its settings. A search killed before repeats this."""
        best = self.study.best()
        if best is None:
            return
        settings = self._settings(best)
        current, kept = self.path / CURRENT, self.path / BEST_RUN
        if _settings_of(kept) != settings and _settings_of(current) == settings:
            remove_directory(kept)
            current.rename(kept)
        score = f"{best.metric} {best.value:.5f} on validation"
        title = f"# trial {best.number} of {len(self.study.trials())}: {score}\n"
        write_text(self.path / BEST, title + require("tomli_w", "train", "writing settings").dumps(settings))

    def result(self) -> Tuning:
        best = self.study.best()
        settings = self._settings(best) if best else {}
        settings.pop("model", None)
        return Tuning(self.path, self.plan.metric, self.study.trials(), best, settings, self.study)


def _with_effect(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine the result of a training."""
    return {name: value for name, value in settings.items() if name not in WITHOUT_EFFECT}


def _settings_of(run: Path) -> dict[str, Any] | None:
    return _with_effect(read_settings(run / SETTINGS)) if (run / SETTINGS).is_file() else None


def _best_evaluation(run: Path) -> dict[str, Any]:
    """Return the metrics of a run's best evaluation, and its epoch."""
    best = [evaluation for evaluation in read_history(run / HISTORY) if evaluation["best"]][-1]
    return {"metrics": metrics_of(best), "epoch": best["epoch"]}
