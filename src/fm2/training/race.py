"""Races: candidates train side by side, the worse ones are dropped in rounds, and the best one becomes the run.

Each candidate is an ordinary run in ``OUT/race``. It trains to a pause, where the worse half is dropped; the others
resume. The last round has no pause. The variants of an ordinary training are dropped only if they are far behind, and
the defaults never, so more effort is at least as good on the validation rows. Its gain is measured against the variant
that an ordinary training chooses.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fm2.artifacts.model_file import MODEL
from fm2.artifacts.run_directory import CALIBRATION, CHECKPOINT, HISTORY, RACE, SETTINGS, read_history, run_output
from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, is_out_of_memory
from fm2.models.embedding import per_field
from fm2.models.registry import get_spec
from fm2.training.candidates import (
    AUTO,
    NUMBER,
    default_candidates,
    least_gain,
    models_to_race,
    settings_around,
)
from fm2.training.inputs import check_splits
from fm2.training.loop import HIGHER_IS_BETTER, WITHOUT_TREES, DivergedError, TrainingProgress
from fm2.training.race_record import Candidate, Record, final_score, plain
from fm2.training.resolve import log_for_defaults, resolve_settings

DIRECTORY = "race"
PAUSES = (1 / 4, 1 / 2, 1, math.inf)  # of the epochs to compare candidates at
COMPARED_EPOCHS = 8  # with a constant schedule; most trainings stop early, long before the last epoch
FEWEST_KEPT = 2  # a slow starter may be the best in the end
# Variants are dropped after a round if their loss (1 - AUC or 1 - RIG with these metrics) exceeds that of the best
# variant by more than this share. On logs of benchmarks/panel.py, the eventual winner was at most 1% behind in log loss
# and 0.6% in 1 - AUC after the second round, and 0.1% in log loss after the third one, except on user_item: with its
# usual rates, an FmFM with scalar matrices is 3% behind FwFM's rates after the second round, and better in the end.
FAR_BEHIND = (math.inf, 0.04, 0.005)
FILES = (MODEL, HISTORY, CHECKPOINT, SETTINGS)
DIVERGED, OUT_OF_MEMORY = "diverged", "ran out of memory"
WAYS_OUT = {DIVERGED: "lower learning_rate=", OUT_OF_MEMORY: "lower batch_size=, or dim= if the model has one"}

Callback = Callable[[TrainingProgress], None]


class TrainCandidate(Protocol):
    """Trains a run up to the first evaluation after ``until`` epochs; returns whether the training has ended.

    ``name`` is that of the candidate, for trackers.
    """

    def __call__(
        self, settings: Settings, path: Path, name: str, resume: bool, until: float, callback: Callback
    ) -> bool: ...


class Race:
    """A race in the directory ``path``, which the caller has locked.

    ``train`` trains a candidate. ``start`` is the config of the model that all candidates start from, if there is one.
    """

    def __init__(
        self,
        path: Path,
        record: Record,
        dataset: Dataset,
        start: Mapping[str, Any] | None,
        train: TrainCandidate,
        callback: Callback,
    ) -> None:
        self._path, self._record, self._dataset, self._start = path, record, dataset, start
        self._train, self._callback = train, callback

    def first_settings(self) -> Settings:
        """Return the settings of the first candidate: those of the run until another candidate wins."""
        return self._settings(0)

    def check(self) -> None:
        """Raise an error, before anything is written, if the dataset or the dimensions do not allow the training."""
        check_splits(self._dataset)
        for number, candidate in enumerate(self._record.candidates):
            if get_spec(candidate.model).dimensions not in ("none", "scalar"):
                per_field(self._settings(number).dim, len(self._dataset.field_sizes), candidate.model)

    def _settings(self, number: int) -> Settings:
        """Return the settings of a candidate: those that it started with, if it has started."""
        candidate, path = self._record.candidates[number], candidate_path(self._path, number)
        changes = {**self._record.settings, **candidate.changes}
        resumed = path if (path / SETTINGS).is_file() else None
        return resolve_settings(candidate.model, self._dataset, changes, resumed, self._start)

    def run(self) -> None:
        """Race until there is a winner, and move its files to the run's directory."""
        record = self._record
        while record.winner is None:
            while record.rounds < len(PAUSES):
                self._run_round()
            best = self._ranked(record.alive)
            if record.models and record.effort > 1:
                self._race_settings(self._best_of_each_model(best)[:2])
            else:
                record.decide(self._winner(best[0]), self._baseline())
            record.save(self._path)
        finish(self._path, record)

    def _run_round(self) -> None:
        """Train all candidates up to the next pause, then drop the worse ones."""
        record = self._record
        self._remove_dropped()
        racing = record.alive
        for number in racing:
            if len(record.candidates[number].scores) <= record.rounds:
                self._train_until_pause(number)
                record.save(self._path)
        trained = self._trained(racing)
        if record.rounds + 1 < len(PAUSES):
            kept = self._kept(trained)
            for number in set(racing) - kept:
                record.candidates[number].dropped = record.rounds + 1
        record.rounds += 1
        record.save(self._path)

    def _trained(self, numbers: Sequence[int]) -> list[int]:
        """Return the candidates that did not fail; raise an error if there are none."""
        candidates = self._record.candidates
        trained = [number for number in numbers if not candidates[number].failed]
        if not trained:
            reasons = sorted({str(candidates[number].failed) for number in numbers})
            ways = " and ".join(WAYS_OUT[reason] for reason in reasons)
            raise Fm2Error(f"train: no candidate of the race could be trained ({', '.join(reasons)}); {ways}")
        return trained

    def _kept(self, trained: Sequence[int]) -> set[int]:
        """Return the better half, variants that may still win, and candidates that have finished, which cost no time.

        Models that are blended with trees are compared without them, because trees hide most of the differences. A
        race of models keeps the best candidate of each of the two best models, which then race with other settings.
        """
        record = self._record
        losses = {number: self._loss_without_trees(number) for number in trained}
        ranked = sorted(trained, key=lambda number: (losses[number], number))
        better_half = 0 if record.compares_variants else max(math.ceil(len(ranked) / 2), FEWEST_KEPT)
        best_models = self._best_of_each_model(ranked)[:FEWEST_KEPT] if record.models else []
        finished = [number for number in trained if record.candidates[number].finished]
        return {*ranked[:better_half], *best_models, *finished, *self._kept_variants(losses)}

    def _kept_variants(self, losses: Mapping[int, float]) -> list[int]:
        """Return the defaults and the other variants that are not far behind.

        This depends on nothing but the variants, so more effort keeps those that an ordinary training keeps.
        """
        variants = self._record.entered[: self._record.variants]
        own = {number: losses[number] for number in variants if number in losses}
        share = FAR_BEHIND[self._record.rounds]
        if math.isinf(share) or not own:
            return list(own)
        limit = (1 + share) * min(self._with_least_gain(number, loss) for number, loss in own.items())
        return [number for number, loss in own.items() if number == variants[0] or loss <= limit]

    def _loss_without_trees(self, number: int) -> float:
        """Return a loss of the model that was a candidate's best one at the end of this round."""
        metric, until = self._record.metric, pause(self._settings(number), self._record.rounds)
        return self._loss(score(candidate_path(self._path, number), metric, until, without_trees=True))

    def _ranked(self, numbers: Sequence[int]) -> list[int]:
        """Return candidates without those that failed, the best first; of equals, the earlier one.

        On logs with few rows, simpler field matrices must be clearly better.
        """
        losses = {number: self._with_least_gain(number, self._final_loss(number)) for number in self._trained(numbers)}
        return sorted(losses, key=lambda number: (losses[number], number))

    def _with_least_gain(self, number: int, loss: float) -> float:
        """Return the loss that other candidates must have to be as good as this one."""
        rows = log_for_defaults(self._dataset)[0]
        return loss / (1 - least_gain(self._record.candidates[number].changes, rows))

    def _final_loss(self, number: int) -> float:
        return self._loss(final_score(self._record.candidates[number]))

    def _loss(self, score: float) -> float:
        """Return a score as a loss, which is positive: the lower, the better."""
        return 1 - score if HIGHER_IS_BETTER[self._record.metric] else score

    def _winner(self, best: int) -> int:
        """Return the best candidate, or the baseline if more effort only found something that is worse than it."""
        baseline = self._baseline()
        if self._record.effort == 1 or self._record.models or self._record.candidates[baseline].failed:
            return best
        return min(best, baseline, key=self._final_loss)

    def _baseline(self) -> int:
        """Return the candidate that the winner is compared with.

        It is the first one, with the defaults, or with more effort the variant that an ordinary training would choose.
        """
        record = self._record
        variants = record.entered[: record.variants]
        if record.compares_variants or record.models or all(record.candidates[number].failed for number in variants):
            return record.entered[0]
        return self._ranked(variants)[0]

    def _best_of_each_model(self, ranked: Sequence[int]) -> list[int]:
        """Return the best candidate of each model, of which there may be two, from the ``ranked`` ones."""
        best: dict[str, int] = {}
        for number in ranked:
            best.setdefault(self._record.candidates[number].model, number)
        return list(best.values())

    def _train_until_pause(self, number: int) -> None:
        record, candidate = self._record, self._record.candidates[number]
        path, began = candidate_path(self._path, number), time.perf_counter()
        settings = self._settings(number)
        until = pause(settings, record.rounds)
        stage = f"{record.describe(number)}, round {record.rounds + 1} of {len(PAUSES)}"

        def callback(progress: TrainingProgress) -> None:
            total = min(progress.total, until * progress.epoch_rows)  # a bar is full at the end of the round
            self._callback(dataclasses.replace(progress, stage=stage, total=max(math.ceil(total), progress.rows)))

        try:
            if not candidate.finished:
                resume = (path / SETTINGS).is_file()
                candidate.finished = self._train(settings, path, f"candidate-{number + 1}", resume, until, callback)
        except (DivergedError, MemoryError, RuntimeError) as error:
            if not isinstance(error, DivergedError) and not is_out_of_memory(error):
                raise
            candidate.failed = DIVERGED if isinstance(error, DivergedError) else OUT_OF_MEMORY
        candidate.seconds = round(candidate.seconds + time.perf_counter() - began, 2)
        candidate.scores.append(None if candidate.failed else score(path, record.metric, until))

    def _remove_dropped(self) -> None:
        for number, candidate in enumerate(self._record.candidates):
            if candidate.dropped is not None:
                shutil.rmtree(candidate_path(self._path, number), ignore_errors=True)

    def _race_settings(self, finalists: Sequence[int]) -> None:
        """Let the two best models race again, with the settings so far and with changes of these.

        Settings often gain more than what separates the two models.
        """
        record = self._record
        for number in set(record.alive) - set(finalists):
            record.candidates[number].dropped = len(PAUSES)
        record.entered, record.rounds, record.models, record.variants = list(finalists), 0, False, 1
        rows, sizes, click_rate = log_for_defaults(self._dataset)
        number_of_changes = NUMBER[record.effort]
        for number in finalists:
            record.candidates[number].scores = []  # its history has those of the new rounds, too
            finalist = record.candidates[number]
            changes = settings_around(
                self._settings(number), rows, sizes, record.settings, number_of_changes, click_rate
            )[1:]
            for changed in ({**finalist.changes, **each} for each in changes):
                if all((other.model, other.changes) != (finalist.model, changed) for other in record.candidates):
                    record.entered.append(len(record.candidates))
                    record.candidates.append(Candidate(finalist.model, changed))


def new_record(
    model: str,
    effort: int,
    dataset: Dataset,
    changes: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    fingerprint: dict[str, str | None],
) -> Record:
    """Choose the candidates: models with their defaults for ``auto``, else settings around the model's defaults."""
    if model == AUTO and start is not None:
        raise Fm2Error(f"train: auto cannot start from a trained model; use {start['model']} instead of auto")
    candidates, variants = [], 0
    for name in models_to_race(dataset, changes, effort) if model == AUTO else [model]:
        defaults = resolve_settings(name, dataset, changes, start=start)
        fixed = {*changes, *(get_spec(name).shape(start) if start else ())}
        rows, sizes, click_rate = log_for_defaults(dataset)
        changed = default_candidates(defaults, rows, fixed, click_rate, sizes)
        if model != AUTO:
            variants = len(changed)
            if effort > 1:
                changed = settings_around(defaults, rows, sizes, fixed, NUMBER[effort], click_rate)
        candidates += [Candidate(name, each) for each in changed]
    entered = list(range(len(candidates)))
    record = Record(model, effort, defaults.metric, plain(changes), fingerprint, candidates, entered)
    record.models, record.variants = model == AUTO, variants
    return record


def resumed_race(path: Path, model: str, effort: int, settings: Mapping[str, Any]) -> Record | None:
    """Return the race of a run that is resumed, or None. If it has a winner, the run is complete afterwards."""
    record = Record.read(path)
    if record is None:
        if effort > 1 or model == AUTO:
            raise Fm2Error(
                f"train: the run in {path} is not a race; resume it with its own model and without effort=, "
                "or use overwrite=True to replace it"
            )
        return None
    record.check_resumed(path, model, effort, settings)
    if record.winner is not None:
        with run_output("train", path, resume=True, overwrite=False):
            finish(path, record)
    return record


def pause(settings: Settings, round: int) -> float:
    """Return after how many epochs a round ends.

    >>> [pause(Settings.of("fmfm", epochs=50), round) for round in range(4)]
    [2.0, 4.0, 8, inf]
    >>> [pause(Settings.of("fmfm", epochs=4, schedule="linear"), round) for round in range(4)]
    [1.0, 2.0, 4, inf]
    """
    constant = settings.schedule == "constant"
    return PAUSES[round] * (min(settings.epochs, COMPARED_EPOCHS) if constant else settings.epochs)


def score(run: Path, metric: str, until: float, without_trees: bool = False) -> float:
    """Return the metric of the model that was the best one when the run paused, optionally without its trees."""
    best = math.nan
    for evaluation in read_history(run / HISTORY):
        if evaluation["best"]:
            best = float(evaluation.get(WITHOUT_TREES, evaluation[metric]) if without_trees else evaluation[metric])
        if evaluation["epoch"] >= until:
            break
    return best


def candidate_path(run: Path, number: int) -> Path:
    """Return the directory of a candidate."""
    return run / DIRECTORY / f"{number:02}"


def finish(run: Path, record: Record) -> None:
    """Move the winner's files to the run's directory and remove the candidates. Can be repeated after a crash."""
    if record.winner is None or not (run / DIRECTORY).is_dir():
        return
    source = candidate_path(run, record.winner)
    for name in FILES:
        if (source / name).is_file():
            if name == MODEL:
                (run / CALIBRATION).unlink(missing_ok=True)  # it belongs to the model that is replaced
            (source / name).replace(run / name)
    shutil.rmtree(run / DIRECTORY)


def discard_race(run: Path) -> None:
    """Remove what an earlier race left in a run directory."""
    shutil.rmtree(run / DIRECTORY, ignore_errors=True)
    (run / RACE).unlink(missing_ok=True)
