"""The trials of a search, kept by Optuna in a file that a kill at any moment leaves whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fm2.errors import Fm2Error, require
from fm2.studies.tuning.choice import Plan
from fm2.studies.tuning.pruner import is_hopeless
from fm2.studies.tuning.spaces import Choice, OneOf, near
from fm2.training.loop import HIGHER_IS_BETTER

JOURNAL = "study.journal"
# So many trials are drawn near the best one: the defaults are good, and in a space of a dozen settings Optuna's sampler
# needs about as many to learn anything. From then on it proposes.
NEAR = 10


@dataclass(frozen=True)
class Trial:
    """What came of a trial: ``tried`` is what it had of the space, ``metrics`` are its best state's on validation.

    Of one that was given up they are those so far, which are worse than the best trial's. ``error`` says why a training
    failed; it has no metrics. ``metric`` is what trials are compared by.
    """

    number: int
    tried: Mapping[str, Any]
    metric: str
    state: Literal["finished", "pruned", "failed"]
    metrics: Mapping[str, float] = field(default_factory=dict)
    epoch: float = 0.0
    seconds: float = 0.0
    error: str = ""

    @property
    def value(self) -> float:
        """What it reached; NaN if it failed."""
        return self.metrics.get(self.metric, math.nan)


class Study:
    """The trials so far and what is tried next, which they, the seed and nothing else decide.

    A trial that is under way when the process ends is proposed again by the next one.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        optuna = require("optuna", "tune", "fm2 tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.plan = optuna, plan
        _mend(path / JOURNAL)
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path / JOURNAL)))
        self._study = optuna.create_study(
            storage=storage,
            study_name="fm2",
            direction="maximize" if HIGHER_IS_BETTER[plan.metric] else "minimize",
            pruner=optuna.pruners.NopPruner(),  # giving_up.py decides
            load_if_exists=True,
        )
        for left in self._study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
            self._study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        self._distributions = {name: self._distribution(choice) for name, choice in plan.space.items()}

    def trials(self) -> list[Trial]:
        """Give what came of all trials, in their order."""
        return [
            Trial(number, self._tried(trial.params), **trial.user_attrs["outcome"])
            for number, trial in enumerate(self._done())
        ]

    def _done(self) -> list[Any]:
        states = self._optuna.trial.TrialState
        done: list[Any] = self._study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED])
        return done

    def best(self) -> Trial | None:
        """Give the best trial, the first of several that are alike."""
        return next(iter(in_order(self.trials())), None)

    def ask(self) -> Asked:
        """Give the next trial."""
        trials, best = self.trials(), self.best()
        random = np.random.default_rng([self.plan.seed, len(trials)])
        self._study.sampler = self._optuna.samplers.TPESampler(seed=int(random.integers(2**31)))
        waiting = self._study.get_trials(deepcopy=False, states=[self._optuna.trial.TrialState.WAITING])
        if len(trials) < NEAR and not waiting:
            drawn = near(self.plan.space, best.tried, random) if best else self.plan.start()
            self._study.enqueue_trial({name: _internal(value) for name, value in drawn.items()})
        trial = self._study.ask(self._distributions)
        return Asked(self, trial, len(trials), self._tried(trial.params))

    def tell(self, trial: Any, outcome: Trial) -> None:
        """Keep what came of a trial.

        For Optuna one that was given up is complete: it had little more to gain, and of those that are pruned its
        sampler takes the longest for the best, whatever they reached.
        """
        values = {name: value for name, value in asdict(outcome).items() if name not in ("number", "tried")}
        trial.set_user_attr("outcome", values)
        if outcome.metrics:
            self._study.tell(trial, outcome.value)
        else:
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def losses(self, number: int) -> list[float]:
        """Give what a trial's evaluations found one after the other: the less, the better."""
        found = self._done()[number].intermediate_values
        return [_loss({self.plan.metric: value}, self.plan.metric) for _, value in sorted(found.items())]

    def importances(self) -> dict[str, float]:
        """Tell how much each setting mattered to what the trials reached; the shares add up to one."""
        found: dict[str, float] = self._optuna.importance.get_param_importances(self._study)
        return found

    def _distribution(self, choice: Choice) -> Any:
        distributions = self._optuna.distributions
        if isinstance(choice, OneOf):
            return distributions.CategoricalDistribution([_internal(value) for value in choice.values])
        if choice.whole:
            return distributions.IntDistribution(choice.low, choice.high, log=choice.log)
        return distributions.FloatDistribution(choice.low, choice.high, log=choice.log)

    def _tried(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Give settings of what Optuna keeps, in the order of the space."""
        return {name: choice.tidied(_external(parameters[name])) for name, choice in self.plan.space.items()}


class Asked:
    """A trial under way."""

    def __init__(self, study: Study, trial: Any, number: int, tried: dict[str, Any]) -> None:
        self._study, self._trial, self.number, self.tried = study, trial, number, tried
        self._settings, self._best = study.plan.settings(tried), study.best()
        self._best_losses = study.losses(self._best.number) if self._best else []
        self._losses: dict[int, float] = {}

    def hopeless(self, evaluation: Mapping[str, Any]) -> bool:
        """Hear of an evaluation, and tell whether the trial is to be given up, for it will not be the best."""
        step = round(evaluation["epoch"] * self._settings.evaluations_per_epoch)
        if step not in self._losses:  # one that is resumed may hear of some again
            self._losses[step] = _loss(evaluation, self._settings.metric)
            self._trial.report(evaluation[self._settings.metric], step)
        if not self._best_losses:
            return False
        return is_hopeless(list(self._losses.values()), self._settings.evaluations_per_epoch, self._best_losses)

    def tell(self, outcome: Trial) -> None:
        """Keep what came of it."""
        self._study.tell(self._trial, outcome)


def in_order(trials: Sequence[Trial]) -> list[Trial]:
    """Give the trials that did not fail, the best first; of several that are alike, the earlier.

    >>> trials = [Trial(i, {}, "auc", "finished", {"auc": auc}) for i, auc in enumerate([0.7, 0.8, 0.8])]
    >>> [trial.number for trial in in_order(trials)]
    [1, 2, 0]
    """
    measured = [trial for trial in trials if trial.metrics]
    return sorted(measured, key=lambda trial: _loss(trial.metrics, trial.metric))


def _loss(metrics: Mapping[str, float], metric: str) -> float:
    """Give what is the less the better."""
    return -metrics[metric] if HIGHER_IS_BETTER[metric] else metrics[metric]


def _internal(value: Any) -> Any:
    """Give a value as Optuna takes it: lists are none of its kinds."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _external(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _mend(journal: Path) -> None:
    """Cut a line that was not finished off, and a lock of a process that is gone; the directory is held by this one."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    try:
        if journal.is_file():
            content = journal.read_bytes()
            with journal.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    except OSError as refused:
        raise Fm2Error(f"tune: {journal}: {refused.strerror}") from refused
