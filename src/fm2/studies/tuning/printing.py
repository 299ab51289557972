"""What a person sees of a search: a line for each trial, at the end the best ones and what mattered."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fm2.studies.tuning.study import Trial, in_order

if TYPE_CHECKING:
    from fm2.studies.tuning.search import Tuning

SHOWN = 5
ENOUGH_TO_WEIGH = 8  # trials; of fewer, what mattered is a guess


def describe(trials: Sequence[Trial]) -> str:
    """Say in a line what came of the last trial, and what it had that the first had not.

    >>> first = Trial(0, {"dim": 8, "l2": 0.1}, "auc", "finished", {"auc": 0.75}, epoch=2.5, seconds=8)
    >>> describe([first])
    'trial 0: AUC 0.75000 after 2.5 epochs, 8 s; the others say where they differ from it'
    >>> describe([first, Trial(1, {"dim": 4, "l2": 0.1}, "auc", "pruned", {"auc": 0.7}, epoch=1, seconds=3)])
    'trial 1: AUC 0.70000 after 1.0 epochs, given up, 3 s (the best is 0.75000, of trial 0); dim 4'
    """
    last, best = trials[-1], in_order(trials)[0]
    differing = _changes(last, trials[0]) if last.number else "the others say where they differ from it"
    return f"trial {last.number}: {_outcome(last, best)}; {differing}"


def _outcome(trial: Trial, best: Trial) -> str:
    found = f"{_title(trial.metric)} {trial.value:.5f} after {trial.epoch:.1f} epochs"
    found = f"failed ({trial.error})" if trial.state == "failed" else found
    found += ", given up" if trial.state == "pruned" else ""
    found += f", {trial.seconds:.0f} s" if trial.seconds else ", as before"
    if trial.number == best.number:
        return found + (", the best so far" if trial.number else "")
    return f"{found} (the best is {best.value:.5f}, of trial {best.number})"


def _title(metric: str) -> str:
    return {"auc": "AUC", "rig": "RIG"}.get(metric, metric.replace("_", " "))


def _changes(trial: Trial, first: Trial) -> str:
    """Say what a trial had that the first one had not."""
    other = {name: value for name, value in trial.tried.items() if value != first.tried[name]}
    return ", ".join(f"{name} {_value(value)}" for name, value in other.items()) or "as trial 0"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def show(tuning: Tuning, model: str, data: str) -> None:
    """Print the best trials, how much each setting mattered, and what to do next."""
    trials = tuning.trials
    if tuning.best is None:
        print("no trial was finished; --resume goes on")
        return
    first, ranked = trials[0], in_order(trials)
    print(f"{len(trials)} trials; the best on validation (* given up before its end):")
    print(f"{'trial':>6} {'log loss':>9} {'AUC':>8} {'epochs':>7} {'seconds':>8}   what differs from trial 0")
    for trial in ranked[:SHOWN] if first in ranked[:SHOWN] else [*ranked[:SHOWN], first]:
        number = f"{trial.number}{'*' if trial.state == 'pruned' else ' '}"
        figures = f"{trial.metrics['log_loss']:>9.5f} {trial.metrics['auc']:>8.5f}"
        print(f"{number:>6} {figures} {trial.epoch:>7.1f} {trial.seconds:>8.0f}   {_changes(trial, first)}")
    if len(ranked) >= ENOUGH_TO_WEIGH:
        print(f"what mattered: {_shares(tuning.importances())}")
    best = shlex.quote(str(tuning.path / "best.toml"))
    print(f"fm2 train {model} {shlex.quote(data)} --settings {best} --out RUN   trains with the best settings")


def _shares(importances: Mapping[str, float]) -> str:
    """Give the largest shares.

    >>> _shares({"l2": 0.7, "dim": 0.299, "dropout": 0.001})
    'l2 70%, dim 30%'
    """
    return ", ".join(f"{name} {share:.0%}" for name, share in list(importances.items())[:SHOWN] if share >= 0.005)
