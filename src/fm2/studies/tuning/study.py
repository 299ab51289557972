"""The trials of a search, stored by Optuna in a journal that survives a kill at any moment.

Trials are proposed in generations. A proposal depends on the seed, its number and the trials of earlier generations, so
that the trials of a generation can be trained in any order, or at the same time.
"""

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
    """The trials so far. They and the seed determine the next proposals."""

    def __init__(self, path: Path, plan: Plan) -> None:
        optuna = require("optuna", "tune", "fm2 tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self.plan = optuna, plan
        _repair(path / JOURNAL)
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path / JOURNAL)))
        self._study = optuna.create_study(
            storage=storage, study_name="fm2", direction=self._direction(), load_if_exists=True
        )
        self._distributions = {name: self._distribution(candidates) for name, candidates in plan.space.items()}

    def _direction(self) -> str:
        return "maximize" if HIGHER_IS_BETTER[self.plan.metric] else "minimize"

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

    def ask(self, trials: int) -> list[Proposal]:
        """Propose what is left of the current generation, without trials after the first ``trials`` ones.

        The first trial, which has to work, is a generation of its own.
        """
        done, size = len(self.trials()), self.plan.generation
        begin = 0 if done == 0 else 1 + (done - 1) // size * size
        end = min(begin + size if done else 1, trials)
        known = in_order(self.trials()[:begin])
        target = self.losses(known[0].number) if known else []
        return [self._propose(number, begin, known, target) for number in range(done, end)]

    def _propose(self, number: int, begin: int, known: Sequence[Trial], target: list[float]) -> Proposal:
        """Propose a trial from the ``known`` ones, which are those before ``begin``, best first."""
        random = np.random.default_rng([self.plan.seed, number])
        seed = int(random.integers(2**31))
        if begin < DRAWN_NEAR_BEST:
            drawn = draw_near(self.plan.space, known[0].tried, random) if known else self.plan.start()
            return Proposal(number, drawn, self.plan.metric, target)
        earlier = self._optuna.create_study(
            direction=self._direction(), sampler=self._optuna.samplers.TPESampler(seed=seed)
        )
        earlier.add_trials(self._done()[:begin])
        return Proposal(number, self._tried(earlier.ask(self._distributions).params), self.plan.metric, target)

    def tell(self, outcome: Trial, evaluations: Mapping[int, float]) -> None:
        """Store the outcome of the next trial, and the metric at its evaluations.

        A pruned trial is complete for Optuna: it had little left to gain, and Optuna's sampler ranks pruned trials by
        their length, not by their value.
        """
        values = {name: value for name, value in asdict(outcome).items() if name not in ("number", "tried")}
        states = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params={name: _to_optuna(value) for name, value in outcome.tried.items()},
                distributions=self._distributions,
                value=outcome.value if outcome.metrics else None,
                state=states.COMPLETE if outcome.metrics else states.PRUNED,
                intermediate_values=dict(evaluations),
                user_attrs={"outcome": values},
            )
        )

    def evaluations(self, number: int) -> dict[int, float]:
        """Return the metric at the evaluations of a trial."""
        values: dict[int, float] = self._done()[number].intermediate_values
        return values

    def losses(self, number: int) -> list[float]:
        """Return the losses of a trial's evaluations, in order. Lower is better for every metric."""
        values = self.evaluations(number)
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


@dataclass(frozen=True)
class Proposal:
    """A proposed trial; ``target`` has the losses of the best trial of the earlier generations, in order."""

    number: int
    tried: Mapping[str, Any]
    metric: str
    target: Sequence[float]


class Evaluations:
    """The evaluations of a trial while it is trained."""

    def __init__(self, proposal: Proposal, per_epoch: int) -> None:
        self._proposal, self._per_epoch = proposal, per_epoch
        self.values: dict[int, float] = {}

    def add(self, evaluation: Mapping[str, Any]) -> bool:
        """Add an evaluation; return whether the trial should be pruned."""
        metric = self._proposal.metric
        self.values.setdefault(round(evaluation["epoch"] * self._per_epoch), evaluation[metric])  # resumed: repeated
        losses = [_loss({metric: value}, metric) for value in self.values.values()]
        return bool(self._proposal.target) and is_hopeless(losses, self._per_epoch, self._proposal.target)


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
