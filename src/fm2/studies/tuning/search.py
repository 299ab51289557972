"""``fm2.tune``: a model and a data set in, the settings that did best on validation out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fm2.artifacts.settings import read_settings
from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, require
from fm2.files import atomic_file, directory_lock
from fm2.models.choices import Metric
from fm2.studies.tuning.choice import Plan
from fm2.studies.tuning.plan import find_plan, write_plan
from fm2.studies.tuning.study import Asked, Study, Trial
from fm2.training.inputs import fingerprint_of_weights, read_row_weights
from fm2.training.loop import TrainingProgress
from fm2.training.run import HISTORY, SETTINGS, read_history
from fm2.training.tracking import metrics_of
from fm2.training.train import train

BEST, BEST_RUN, CURRENT = "best.toml", "best", "trial"
PLACES = ("threads", "device")  # where a training ran, which is nothing of its result


@dataclass(frozen=True)
class Tuning:
    """What a search found: its trials in their order, the best one's settings, and how much each setting mattered.

    ``settings`` are what :func:`fm2.train` takes; they are in ``best.toml`` as well.
    """

    path: Path
    metric: Metric
    trials: list[Trial]
    best: Trial | None
    settings: dict[str, Any]
    _study: Study

    def importances(self) -> dict[str, float]:
        """Tell how much each setting mattered to what the trials reached; the shares add up to one."""
        return self._study.importances()


class GivenUp(Exception):
    """A trial that is not worth its time."""


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
    tell: Callable[[list[Trial]], None] = lambda trials: None,
) -> Tuning:
    """Search for settings of a model that suit a data set.

    The first trial is the model's defaults, or what is nearest to them in a ``space`` of your own. Each trial is a
    training, given up early where others were better, and judged by its best ``metric`` on validation (log loss unless
    told otherwise). ``fix`` has settings that all trials have; ``space`` is what is tried in place of the model's own:
    lists of values, or ranges like ``{"low": 0.001, "high": 0.01, "log": True}``, or a TOML file of them. With
    ``resume`` a search goes on until there are so many trials in all; after ``timeout`` seconds it stops. ``tell`` is
    given the trials so far after each of them. In the directory ``out`` the best settings are ``best.toml`` and the
    best run is ``best``.
    """
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    check_threads("tune", threads)
    if trials < 1:
        raise Fm2Error(f"tune: trials is {trials}; it is 1 or more")
    path = Path(out)
    weights = None if row_weights is None else read_row_weights(row_weights, dataset, "tune")
    weighed = fingerprint_of_weights(weights)
    given = {"metric": metric, "seed": seed, "fix": fix, "space": space, "row_weights": weighed}
    plan = find_plan(path, resume, model, dataset, given)
    require("optuna", "tune", "fm2 tune")
    with directory_lock(path, "tune", "another search"):
        write_plan(path, plan, dataset, weighed)
        search = _Search(path, plan, dataset, {"threads": threads, "row_weights": weights}, watch)
        search.run(trials, None if timeout is None else time.monotonic() + timeout, tell)
        return search.tuning()


class _Search:
    """Runs trials in one place, and keeps the run of the best in another."""

    def __init__(
        self,
        path: Path,
        plan: Plan,
        dataset: Dataset,
        options: dict[str, Any],
        watch: Callable[[TrainingProgress], None],
    ) -> None:
        self._path, self._plan, self._dataset, self._options, self._watch = path, plan, dataset, options, watch
        self._study = Study(path, plan)

    def run(self, trials: int, deadline: float | None, tell: Callable[[list[Trial]], None]) -> None:
        self._settle()
        while len(self._study.trials()) < trials and (deadline is None or time.monotonic() < deadline):
            try:
                self._try(self._study.ask(), deadline)
            except KeyboardInterrupt:
                if deadline is None or time.monotonic() < deadline:
                    raise
                break  # the time is over; the trial under way is gone on with by the next search
            self._settle()
            shutil.rmtree(self._path / CURRENT, ignore_errors=True)
            tell(self._study.trials())

    def _try(self, asked: Asked, deadline: float | None) -> None:
        """Train with what is asked for, unless that was done before."""
        for before in self._study.trials():
            if before.tried == asked.tried:
                asked.tell(replace(before, number=asked.number, seconds=0.0))
                return
        settings, place = self._plan.settings(asked.tried), self._path / CURRENT
        again = _settings_in(place) == _alike(settings.used())
        if not again:
            shutil.rmtree(place, ignore_errors=True)
        for evaluation in read_history(place / HISTORY):
            asked.hopeless(evaluation)

        def watch(report: TrainingProgress) -> None:
            self._watch(report)
            if report.evaluated and report.evaluation and asked.hopeless(report.evaluation):
                raise GivenUp
            if deadline is not None and time.monotonic() > deadline:
                raise KeyboardInterrupt

        begin = time.perf_counter()
        changes = {name: value for name, value in settings.used().items() if name not in ("model", *PLACES)}
        options = {**changes, **self._options, "resume": again, "callback": watch}
        try:
            train(settings.model, self._dataset, place, **options)
            outcome = {"state": "finished", **_best(place)}
        except GivenUp:
            outcome = {"state": "pruned", **_best(place)}
        except Fm2Error as failed:  # such as a rate that is too high; the first trial, and the disk, have to work
            if asked.number == 0 or isinstance(failed.__cause__, OSError):
                raise
            outcome = {"state": "failed", "error": str(failed)}
        seconds = time.perf_counter() - begin
        asked.tell(Trial(asked.number, asked.tried, self._plan.metric, seconds=seconds, **outcome))

    def _settle(self) -> None:
        """Let the run of the best trial be where it belongs, and be told in a file; a kill before this is made good."""
        best = self._study.best()
        if best is None:
            return
        wanted = _alike(self._plan.settings(best.tried).used())
        current, kept = self._path / CURRENT, self._path / BEST_RUN
        if _settings_in(kept) != wanted and _settings_in(current) == wanted:
            shutil.rmtree(kept, ignore_errors=True)
            current.rename(kept)
        text = require("tomli_w", "train", "writing settings").dumps(wanted)
        found = f"{best.metric} {best.value:.5f} on validation"
        title = f"# trial {best.number} of {len(self._study.trials())}: {found}\n"
        with atomic_file(self._path / BEST) as partial:
            partial.write_text(title + text, encoding="utf-8")

    def tuning(self) -> Tuning:
        best = self._study.best()
        settings = _alike(self._plan.settings(best.tried).used()) if best else {}
        settings.pop("model", None)
        return Tuning(self._path, self._plan.metric, self._study.trials(), best, settings, self._study)


def _alike(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings that decide what comes out of a training."""
    return {name: value for name, value in settings.items() if name not in PLACES}


def _settings_in(run: Path) -> dict[str, Any] | None:
    return _alike(read_settings(run / SETTINGS)) if (run / SETTINGS).is_file() else None


def _best(run: Path) -> dict[str, Any]:
    """Give the metrics of a run's best state, and when that was."""
    best = [entry for entry in read_history(run / HISTORY) if entry["best"]][-1]
    return {"metrics": metrics_of(best), "epoch": best["epoch"]}
