"""``fm2.tune``: search for the settings with the best validation metric."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, require, warn
from fm2.files import output_directory, remove_directory, write_errors, write_files, write_text
from fm2.models.choices import Metric
from fm2.remote.paths import writes
from fm2.studies.execution.jobs import Engine, Jobs, LostRun, map_runs, started
from fm2.studies.tuning.plan import GENERATION, PLAN, Plan, find_plan, plan_files
from fm2.studies.tuning.study import Proposal, Study, Trial
from fm2.studies.tuning.trial import OutOfTime, Task, settings_of, train_trial, with_effect
from fm2.training.inputs import fingerprint_of_weights, read_row_weights
from fm2.training.loop import TrainingProgress
from fm2.training.without_effect import warn_without_effect

BEST, BEST_RUN, CURRENT = "best.toml", "best", "trials"


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
    generation: int | None = None,
    jobs: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    on_trial: Callable[[list[Trial]], None] = lambda trials: None,
) -> Tuning:
    """Search for the settings of a model that have the best validation metric on a dataset.

    The first trial uses the model's defaults, or the nearest point of your own ``space``. Each trial is a training; it
    stops early if it cannot become the best, and its score is its best ``metric`` on validation (default: log loss).
    ``fix`` has settings that all trials share. ``space`` replaces the model's search space: lists of values, or ranges
    such as ``{"low": 0.001, "high": 0.01, "log": True}``, or a TOML file with them.

    Trials are proposed in generations of ``generation`` trials (default: 4) that do not know of each other. ``jobs``
    trains that many of them at once, each in a process of its own; with ``engine="ray"`` they are tasks of the Ray
    cluster at ``address``. The trials and their scores are those of a search with one job.

    ``resume`` continues a search until it has ``trials`` trials in total. ``timeout`` stops it after that many seconds.
    ``on_trial`` is called after each trial with all trials so far. The directory ``out`` has the best settings in
    ``best.toml`` and the best run in ``best``.
    """
    dataset = Dataset.of(data)
    check_threads("tune", threads)
    where = Jobs("tune", jobs, engine, address, threads)
    where.check()
    if jobs is not None and jobs > (generation or GENERATION) and not resume:
        warn(f"tune: a generation has {generation or GENERATION} trials; generation={jobs} trains {jobs} at once")
    if trials < 1:
        raise Fm2Error(f"tune: trials must be at least 1, got {trials}")
    path = Path(out)
    weights = None if row_weights is None else read_row_weights(row_weights, dataset, "tune")
    fingerprint = fingerprint_of_weights(weights)
    arguments = {"metric": metric, "seed": seed, "fix": fix, "space": space, "row_weights": fingerprint}
    arguments["generation"] = generation
    plan = find_plan(path, resume, model, dataset, arguments)
    require("optuna", "tune", "fm2 tune")
    warn_without_effect("tune", dataset, (plan.fixed, plan.settings({})))
    with output_directory("tune", path, "search", PLAN, "another search", resume=resume, overwrite=None):
        with write_errors(path, "tune"):
            write_files(path, plan_files(plan, dataset, fingerprint), PLAN)
        deadline = math.inf if timeout is None else time.time() + timeout
        search = _Search(path, plan, dataset, {"threads": threads, "row_weights": weights}, where, watch, deadline)
        with started(where):
            search.run(trials, on_trial)
        return search.result()


@dataclass
class _Search:
    """Runs the trials in directories of their own, and keeps the run of the best trial."""

    path: Path
    plan: Plan
    dataset: Dataset
    options: dict[str, Any]
    jobs: Jobs
    watch: Callable[[TrainingProgress], None]
    deadline: float

    def __post_init__(self) -> None:
        self.study = Study(self.path, self.plan)

    def run(self, trials: int, on_trial: Callable[[list[Trial]], None]) -> None:
        self._keep_best()
        try:
            while len(self.study.trials()) < trials and not self._is_late():
                self._run_generation(self.study.ask(trials), on_trial)
        except OutOfTime:
            pass  # a resumed search continues these trials
        if len(self.study.trials()) >= trials:
            remove_directory(self.path / CURRENT)

    def _is_late(self) -> bool:
        return time.time() >= self.deadline

    def _settings(self, tried: Mapping[str, Any]) -> dict[str, Any]:
        return with_effect(self.plan.settings(tried).used())

    def _run_generation(self, proposals: list[Proposal], on_trial: Callable[[list[Trial]], None]) -> None:
        """Train the proposed trials, but not the same settings again; store their outcomes in order."""
        known = [trial.tried for trial in self.study.trials()]
        data = self.dataset if self.jobs.is_sequential else self.dataset.path.resolve()
        tasks = {}
        for each in proposals:
            if each.tried not in known:
                run = self.path.resolve() / CURRENT / str(each.number)
                settings = {**self._settings(each.tried), **self.options}
                tasks[f"trial {each.number}"] = Task(each, run, settings, data, self.deadline)
            known.append(each.tried)
        ended: dict[str, dict[str, Any]] = {}
        waiting = list(proposals)
        with contextlib.closing(map_runs(train_trial, tasks, self.jobs, self.watch)) as results:
            self._store(waiting, tasks.keys(), ended, on_trial)
            for name, result in results:
                if isinstance(result, LostRun):
                    raise result
                if result is None:
                    raise OutOfTime
                ended[name] = result
                self._store(waiting, tasks.keys(), ended, on_trial)

    def _store(
        self,
        waiting: list[Proposal],
        trained: Collection[str],
        ended: Mapping[str, dict[str, Any]],
        on_trial: Callable[[list[Trial]], None],
    ) -> None:
        """Store the outcomes of the first of the waiting trials, as far as they are known."""
        while waiting and (f"trial {waiting[0].number}" in ended or f"trial {waiting[0].number}" not in trained):
            proposal = waiting.pop(0)
            outcome = ended.get(f"trial {proposal.number}")
            if outcome is None:
                earlier = next(trial for trial in self.study.trials() if trial.tried == proposal.tried)
                evaluations = self.study.evaluations(earlier.number)
                self.study.tell(replace(earlier, number=proposal.number, seconds=0.0), evaluations)
            else:
                evaluations = outcome.pop("evaluations")
                trial = Trial(proposal.number, proposal.tried, self.plan.metric, **outcome)
                self.study.tell(trial, evaluations)
            self._keep_best()
            remove_directory(self.path / CURRENT / str(proposal.number))
            on_trial(self.study.trials())

    def _keep_best(self) -> None:
        """Move the run of the best trial to its place, and write its settings. A search killed before repeats this."""
        best = self.study.best()
        if best is None:
            return
        settings = self._settings(best.tried)
        current, kept = self.path / CURRENT / str(best.number), self.path / BEST_RUN
        if settings_of(kept) != settings and settings_of(current) == settings:
            remove_directory(kept)
            current.rename(kept)
        score = f"{best.metric} {best.value:.5f} on validation"
        title = f"# trial {best.number} of {len(self.study.trials())}: {score}\n"
        write_text(self.path / BEST, title + require("tomli_w", "train", "writing settings").dumps(settings))

    def result(self) -> Tuning:
        best = self.study.best()
        settings = self._settings(best.tried) if best else {}
        settings.pop("model", None)
        return Tuning(self.path, self.plan.metric, self.study.trials(), best, settings, self.study)
