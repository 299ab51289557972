"""The output of a search on the terminal: a line per trial, and a summary at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fm2.evaluation.metrics import metric_title
from fm2.studies.tuning.study import Trial, in_order

if TYPE_CHECKING:
    from fm2.studies.tuning.search import Tuning

SHOWN = 5
MIN_TRIALS_FOR_IMPORTANCE = 8  # with fewer trials, the importance of a setting is a guess


def describe(trials: Sequence[Trial]) -> str:
    """Return a line about the last trial: its score, and the settings that differ from trial 0.

    >>> first = Trial(0, {"dim": 8, "l2": 0.1}, "auc", "finished", {"auc": 0.75}, epoch=2.5, seconds=8)
    >>> describe([first])
    'trial 0: AUC 0.75000 after 2.5 epochs, 8 s; baseline for the other trials'
    >>> describe([first, Trial(1, {"dim": 4, "l2": 0.1}, "auc", "pruned", {"auc": 0.7}, epoch=1, seconds=3)])
    'trial 1: AUC 0.70000 after 1.0 epochs, stopped early, 3 s (best: 0.75000, trial 0); dim 4'
    """
    last, best = trials[-1], in_order(trials)[0]
    settings = _changes(last, trials[0]) if last.number else "baseline for the other trials"
    return f"trial {last.number}: {_outcome(last, best)}; {settings}"


def _outcome(trial: Trial, best: Trial) -> str:
    if trial.state == "failed":
        outcome = f"failed ({trial.error})"
    else:
        outcome = f"{metric_title(trial.metric)} {trial.value:.5f} after {trial.epoch:.1f} epochs"
    if trial.state == "pruned":
        outcome += ", stopped early"
    outcome += f", {trial.seconds:.0f} s" if trial.seconds else ", same as before"
    if trial.number == best.number:
        return outcome + (", best so far" if trial.number else "")
    return f"{outcome} (best: {best.value:.5f}, trial {best.number})"


def _changes(trial: Trial, first: Trial) -> str:
    """Format the settings of a trial that differ from those of the first one."""
    changed = {name: value for name, value in trial.tried.items() if value != first.tried[name]}
    texts = {name: f"{value:g}" if isinstance(value, float) else value for name, value in changed.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items()) or "same as trial 0"


def show(tuning: Tuning, model: str, data: str) -> None:
    """Print the best trials, the importance of each setting, and the command that uses the best settings."""
    trials = tuning.trials
    if tuning.best is None:
        print("no trial finished; continue with --resume")
        return
    first, ranked = trials[0], in_order(trials)
    print(f"{len(trials)} trials; the best on the validation split (* stopped early):")
    print(f"{'trial':>6} {'log loss':>9} {'AUC':>8} {'epochs':>7} {'seconds':>8}   changes from trial 0")
    for trial in ranked[:SHOWN] if first in ranked[:SHOWN] else [*ranked[:SHOWN], first]:
        number = f"{trial.number}{'*' if trial.state == 'pruned' else ' '}"
        scores = f"{trial.metrics['log_loss']:>9.5f} {trial.metrics['auc']:>8.5f}"
        print(f"{number:>6} {scores} {trial.epoch:>7.1f} {trial.seconds:>8.0f}   {_changes(trial, first)}")
    if len(ranked) >= MIN_TRIALS_FOR_IMPORTANCE:
        largest = list(tuning.importances().items())[:SHOWN]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.005)
        print(f"importance of the settings: {shares}")
    best = shlex.quote(str(tuning.path / "best.toml"))
    print(f"train with the best settings: fm2 train {model} {shlex.quote(data)} --settings {best} --out RUN")
