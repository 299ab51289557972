"""The trials of a search, stored by Optuna in a journal that survives a kill at any moment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fm2.errors import Fm2Error, require
from fm2.studies.tuning.plan import Plan
from fm2.studies.tuning.spaces import Candidates, Choices, draw_near
from fm2.training.loop import HIGHER_IS_BETTER

JOURNAL = "study.journal"
# The first trials are drawn near the best one, because the defaults are good. Optuna's sampler proposes the others. In
# a space of a dozen settings, it needs about this many trials to learn anything.
DRAWN_NEAR_BEST = 10
# A trial is stopped if, to become the best, it would have to gain more than this many times the gain of its last epoch.
# Median pruning, which compares trials at the same evaluation, prefers settings that learn fast over settings that end
# well: on Criteo's small log it stopped the third best of ten trials after one epoch, and would have stopped the best.
GAINS = 2.0


@dataclass(frozen=True)
class Trial:
    """The outcome of a trial: the settings it ``tried``, and the validation ``metrics`` of its best evaluation.

    The metrics of a pruned trial are those up to its end. A failed trial has no metrics; ``error`` is the reason.
    ``metric`` is the one that the search optimizes.
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
        """The value of the optimized metric; NaN if the trial failed."""
        return self.metrics.get(self.metric, math.nan)


class Study:
    """The trials so far. They and the seed determine the next proposal.

    A trial that is running when the process ends is proposed again by the next process.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        optuna = require("optuna", "tune", "fm2 tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.plan = optuna, plan
        _repair(path / JOURNAL)
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path / JOURNAL)))
        self._study = optuna.create_study(
            storage=storage,
            study_name="fm2",
            direction="maximize" if HIGHER_IS_BETTER[plan.metric] else "minimize",
            pruner=optuna.pruners.NopPruner(),  # is_hopeless decides
            load_if_exists=True,
        )
        for interrupted in self._study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
            self._study.tell(interrupted.number, state=optuna.trial.TrialState.FAIL)
        self._distributions = {name: self._distribution(candidates) for name, candidates in plan.space.items()}

    def trials(self) -> list[Trial]:
        """Return the outcomes of all trials, in order."""
        return [
            Trial(number, self._tried(trial.params), **trial.user_attrs["outcome"])
            for number, trial in enumerate(self._done())
        ]

    def _done(self) -> list[Any]:
        states = self._optuna.trial.TrialState
        done: list[Any] = self._study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED])
        return done

    def best(self) -> Trial | None:
        """Return the best trial; of equal ones, the first."""
        return next(iter(in_order(self.trials())), None)

    def ask(self) -> RunningTrial:
        """Propose the next trial."""
        trials, best = self.trials(), self.best()
        random = np.random.default_rng([self.plan.seed, len(trials)])
        self._study.sampler = self._optuna.samplers.TPESampler(seed=int(random.integers(2**31)))
        waiting = self._study.get_trials(deepcopy=False, states=[self._optuna.trial.TrialState.WAITING])
        if len(trials) < DRAWN_NEAR_BEST and not waiting:
            drawn = draw_near(self.plan.space, best.tried, random) if best else self.plan.start()
            self._study.enqueue_trial({name: _to_optuna(value) for name, value in drawn.items()})
        trial = self._study.ask(self._distributions)
        return RunningTrial(self, trial, len(trials), self._tried(trial.params))

    def tell(self, trial: RunningTrial, outcome: Trial) -> None:
        """Store the outcome of a trial.

        A pruned trial is complete for Optuna: it had little left to gain, and Optuna's sampler ranks pruned trials by
        their length, not by their value.
        """
        values = {name: value for name, value in asdict(outcome).items() if name not in ("number", "tried")}
        trial.stored.set_user_attr("outcome", values)
        state = None if outcome.metrics else self._optuna.trial.TrialState.PRUNED
        self._study.tell(trial.stored, outcome.value if outcome.metrics else None, state=state)

    def losses(self, number: int) -> list[float]:
        """Return the losses of a trial's evaluations, in order. Lower is better for every metric."""
        values = self._done()[number].intermediate_values
        return [_loss({self.plan.metric: value}, self.plan.metric) for _, value in sorted(values.items())]

    def importances(self) -> dict[str, float]:
        """Return how much each setting influenced the metric. The shares add up to 1."""
        importances: dict[str, float] = self._optuna.importance.get_param_importances(self._study)
        return importances

    def _distribution(self, candidates: Candidates) -> Any:
        distributions = self._optuna.distributions
        if isinstance(candidates, Choices):
            return distributions.CategoricalDistribution([_to_optuna(value) for value in candidates.values])
        kind = distributions.IntDistribution if candidates.integer else distributions.FloatDistribution
        return kind(candidates.low, candidates.high, log=candidates.log)

    def _tried(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Convert Optuna's parameters to settings, in the order of the space."""
        return {name: each.rounded(_from_optuna(parameters[name])) for name, each in self.plan.space.items()}


class RunningTrial:
    """A proposed trial."""

    def __init__(self, study: Study, stored: Any, number: int, tried: dict[str, Any]) -> None:
        self.stored, self.number, self.tried = stored, number, tried
        self._settings, best = study.plan.settings(tried), study.best()
        self._best_losses = study.losses(best.number) if best else []
        self._losses: dict[int, float] = {}

    def report(self, evaluation: Mapping[str, Any]) -> bool:
        """Store an evaluation; return whether the trial should be pruned."""
        step = round(evaluation["epoch"] * self._settings.evaluations_per_epoch)
        if step not in self._losses:  # a resumed training repeats evaluations
            self._losses[step] = _loss(evaluation, self._settings.metric)
            self.stored.report(evaluation[self._settings.metric], step)
        if not self._best_losses:
            return False
        return is_hopeless(list(self._losses.values()), self._settings.evaluations_per_epoch, self._best_losses)


def is_hopeless(losses: Sequence[float], per_epoch: int, best: Sequence[float]) -> bool:
    """Return whether a trial with these losses so far will not beat the best trial; ``per_epoch`` is evaluations.

    Gains shrink from epoch to epoch, so twice the last gain is more than a trial can still gain. The exception is a
    plateau at the start, where interactions are slow to learn: no trial is stopped before the evaluation at which the
    best trial itself last looked hopeless.

    >>> is_hopeless([0.52, 0.50, 0.49], per_epoch=1, best=[0.51, 0.48, 0.475])
    False
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, best=[0.51, 0.48, 0.475])
    True
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, best=[0.5, 0.499, 0.4985, 0.498, 0.48, 0.475])
    False
    """
    plateaus = [end for end in range(len(best)) if _is_out_of_reach(best[:end], per_epoch, min(best))]
    return len(losses) > max(plateaus, default=0) and _is_out_of_reach(losses, per_epoch, min(best))


def _is_out_of_reach(losses: Sequence[float], per_epoch: int, target: float) -> bool:
    if len(losses) <= per_epoch:
        return False
    now, before = min(losses), min(losses[:-per_epoch])
    return now - GAINS * (before - now) > target


def in_order(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that did not fail, best first; equal ones keep their order.

    >>> trials = [Trial(i, {}, "auc", "finished", {"auc": auc}) for i, auc in enumerate([0.7, 0.8, 0.8])]
    >>> [trial.number for trial in in_order(trials)]
    [1, 2, 0]
    """
    measured = [trial for trial in trials if trial.metrics]
    return sorted(measured, key=lambda trial: _loss(trial.metrics, trial.metric))


def _loss(metrics: Mapping[str, float], metric: str) -> float:
    """Return the metric, negated if higher is better."""
    return -metrics[metric] if HIGHER_IS_BETTER[metric] else metrics[metric]


def _to_optuna(value: Any) -> Any:
    """Encode lists as strings, because Optuna does not support them."""
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _from_optuna(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _repair(journal: Path) -> None:
    """Remove an incomplete last line and the lock of a dead process; this process has the directory to itself."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    try:
        if journal.is_file():
            content = journal.read_bytes()
            with journal.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)
    except OSError as error:
        raise Fm2Error(f"tune: {journal}: {error.strerror}") from error
