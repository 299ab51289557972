"""The training loop: epochs of shuffled batches, evaluations, the best model, checkpoints."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import Saved, open_arrays, save_arrays, verify_arrays
from fm2.artifacts.model_file import MODEL, save_model
from fm2.artifacts.run_directory import (
    CHECKPOINT,
    HISTORY,
    SHARDED_CHECKPOINT,
    append_history,
    read_history,
    write_history,
)
from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error, Terminated
from fm2.evaluation import metrics
from fm2.evaluation.metrics import sigmoid, weigh_clicks
from fm2.training.backend import Backend
from fm2.training.inputs import check_splits
from fm2.training.shuffling import shuffled, with_next
from fm2.training.tree_fields import TreeFields, make_tree_fields

CHECKPOINT_SECONDS = 60.0
LONG_CHECKPOINT = 3.0  # seconds; if writing takes longer, checkpoints are less frequent: it takes 5% of the time
EVALUATION_ROWS = 16_384  # at a time
RUNAWAY_LOSS = 1e3
MOST_EPOCHS, MOST_STEPS = 1_000_000, (1 << 31) - 1  # as in Settings and in native code
WITHOUT_TREES = "without_trees"
HIGHER_IS_BETTER = {"log_loss": False, "auc": True, "rig": True}


class DivergedError(Fm2Error):
    """The training loss became too large or infinite."""


@dataclass
class Position:
    """How far a training is. Together with the backend's state and the settings it determines all that follows."""

    epoch: int = 0
    row: int = 0
    steps: int = 0
    evaluations: int = 0
    best: float | None = None
    waited: int = 0
    loss: float = 0.0
    loss_rows: float = 0

    def check(self, rows: int) -> None:
        """Raise ValueError unless this can be a position in a training on so many rows."""
        most = {"epoch": MOST_EPOCHS, "row": rows, "steps": MOST_STEPS, "evaluations": MOST_STEPS, "waited": MOST_STEPS}
        for name, value in asdict(self).items():
            if name in most:
                valid = type(value) is int and 0 <= value <= most[name]
            else:
                valid = type(value) in (int, float) or (value is None and name == "best")
            if not valid:
                raise ValueError(f"the position has {name} {value!r}")


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training, passed to the callback after every step and every evaluation.

    Of ``total`` rows in all epochs, ``rows`` are done; ``begun`` of them were done before the run was resumed. An
    epoch has ``epoch_rows``. ``loss`` is the mean training loss since the last evaluation, NaN before the first step.
    ``evaluation`` is the last evaluation, and ``evaluated`` says that it has just taken place. ``waited``
    counts the evaluations since the last improvement of ``metric``. ``stage`` says which training of several this is.
    """

    rows: int
    total: int
    begun: int
    epoch_rows: int
    loss: float
    evaluation: dict[str, Any] | None
    evaluated: bool = False
    waited: int = 0
    metric: str = "log_loss"
    stage: str = ""


class TrainingLoop:
    """Trains until all epochs are done, or until ``patience`` evaluations in a row bring no improvement.

    A run can only be resumed with the same ``fingerprint``: the same data, row weights and model to start from.

    If the dataset has a share w of its training rows without a click, the odds of a click in training are 1 / w times
    the true ones. Evaluations and the saved model therefore add ln w to the bias; checkpoints have the bias as trained.
    """

    def __init__(
        self,
        backend: Backend,
        dataset: Dataset,
        vocabularies: Sequence[Vocabulary],
        path: Path,
        callback: Callable[[TrainingProgress], None],
        row_weights: NDArray[np.float32] | None = None,
        fingerprint: dict[str, str | None] | None = None,
        trees: TreeFields | None = None,
    ) -> None:
        check_splits(dataset)
        self._backend, self._dataset, self._path, self._callback = backend, dataset, path, callback
        self._encoder = (dataset.schema, vocabularies)
        self.settings: Settings = backend.settings
        self.model = backend.model
        self._train = dataset.train
        self._labels, self._rows = np.asarray(self._train.labels), np.asarray(self._train.rows)
        self._train_weights = None if self._train.weights is None else np.asarray(self._train.weights)
        self._row_weights, self._fingerprint = row_weights, fingerprint or {}
        self._shift = np.float32(math.log(dataset.negative_rate))
        self._trees = trees or make_tree_fields(dataset, vocabularies, self.model, self.settings, row_weights)
        self._train_rows = self._trees.seen(self._train.encoded)
        self._at = Position()
        self._evaluation: dict[str, Any] | None = None
        self._saved = time.monotonic()
        self._saving = 0.0  # seconds that the last checkpoint took
        self._interrupt: type[KeyboardInterrupt] | None = None
        self._begun = 0
        self._until = math.inf

    def resume(self) -> None:
        """Continue from the last checkpoint, or start over if there is none."""
        if (self._path / SHARDED_CHECKPOINT).is_file():
            raise Fm2Error(
                f"train: the run in {self._path} was trained by several workers; resume it with fm2 train --workers "
                "or fm2.distributed.train"
            )
        if not (self._path / CHECKPOINT).is_file():
            write_history(self._path / HISTORY, [])
            return
        verify_arrays(self._path / CHECKPOINT)
        with open_arrays(self._path / CHECKPOINT) as (arrays, values):
            self._restore_position(values)
            self._backend.load(arrays, self._at.steps)
        write_history(self._path / HISTORY, self._restore_history())

    def _restore_position(self, values: Mapping[str, Any]) -> None:
        """Continue at the position of a checkpoint, after checking that it has the same data."""
        for name, current in self._fingerprint.items():
            if values["fingerprint"].get(name) != current:
                raise Fm2Error(f"train: the run in {self._path} had {name}; use the same to resume it")
        self._at = Position(**values["position"])
        self._at.check(len(self._train))

    def _restore_history(self) -> list[dict[str, Any]]:
        """Return the evaluations up to the position."""
        history = read_history(self._path / HISTORY)[: self._at.evaluations]
        self._evaluation = history[-1] if history else None
        return history

    def run(self, warm_start: bool = False, until: float = math.inf) -> bool:
        """Train to the end and return True. When interrupted, finish the current step and write a checkpoint.

        After a ``warm_start`` the model is evaluated before the first step, because it may be the best one. Training
        pauses at the first evaluation after ``until`` epochs and then returns False, unless it has ended; a resumed run
        continues from there.
        """
        self._until = until
        if warm_start and not self._at.steps:
            self.evaluate()
        self._begun = self._rows_done()
        if self._ended():
            self._report(math.nan)  # so that a display knows why nothing is trained
        with self._interrupts():
            while not self._ended() and not self._pauses():
                self._run_epoch()
        self._save_checkpoint()
        return self._ended()

    def _rows_done(self) -> int:
        return self._at.epoch * len(self._train) + self._at.row

    def _stops_early(self) -> bool:
        return self._at.waited >= self.settings.patience

    def _ended(self) -> bool:
        return self._at.epoch >= self.settings.epochs or self._stops_early()

    def _pauses(self) -> bool:
        return self._evaluation is not None and self._evaluation["epoch"] >= self._until

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Let Ctrl-C wait for the end of a step, so that no step is left half done; a second Ctrl-C does not wait.

        The same applies to SIGTERM if it raises an exception, as in the command line.
        """

        def remember(number: int, _: object) -> None:
            interrupt = Terminated if number == signal.SIGTERM else KeyboardInterrupt
            if self._interrupt:
                raise interrupt
            self._interrupt = interrupt

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        handled = [number for number, handler in before.items() if callable(handler)]
        for number in handled:
            signal.signal(number, remember)
        try:
            yield
        finally:
            for number in handled:
                signal.signal(number, before[number])

    def _run_epoch(self) -> None:
        rows, batch, evaluations = len(self._train), self.settings.batch_size, self.settings.evaluations_per_epoch
        evaluated_at = {rows * (i + 1) // evaluations // batch * batch for i in range(evaluations - 1)} | {rows}
        batches = shuffled(rows, [self.settings.seed, self._at.epoch], batch, skip=self._at.row)
        for order, following in with_next(batches):
            self._backend.announce(self._train_rows, following)
            self._step(order)
            if self._at.row in evaluated_at:
                self.evaluate()
            interrupt = self._interruption()
            if interrupt or self._checkpoint_is_due():
                self._save_checkpoint()
            if interrupt:
                raise interrupt
            if self._stops_early() or self._pauses():
                break
        if self._at.row == rows:
            self._at.epoch, self._at.row = self._at.epoch + 1, 0

    def _interruption(self) -> type[KeyboardInterrupt] | None:
        """Return the exception that ends the training after this step, if any."""
        return self._interrupt

    def _checkpoint_is_due(self) -> bool:
        return time.monotonic() - self._saved > CHECKPOINT_SECONDS * max(self._saving / LONG_CHECKPOINT, 1.0)

    def _step(self, order: NDArray[np.int64]) -> None:
        labels, weights = weigh_clicks(
            self._labels[order].astype(np.float32), self._weights(order), self.settings.positive_weight
        )
        loss = 0.0
        if weights is None or weights.any():
            with self._damaged_rows("train"):
                loss = self._backend.step(self._train_rows, order, labels, weights, self._rate())
        self._at.row += len(order)
        self._at.steps = self._backend.steps
        counted = len(order) if weights is None else float(weights.sum(dtype=np.float64))
        self._at.loss += loss * counted
        self._at.loss_rows += counted
        if not loss < RUNAWAY_LOSS:
            kept = "the best model so far is kept" if self._at.best is not None else "there is no model yet"
            raise DivergedError(
                f"train: the loss is {loss:.3g} at step {self._at.steps}; lower learning_rate= "
                f"and replace the run with overwrite=True ({kept})"
            )
        self._report(self._at.loss / self._at.loss_rows if self._at.loss_rows else math.nan)

    def _report(self, loss: float, evaluated: bool = False) -> None:
        rows = len(self._train)
        progress = TrainingProgress(
            rows=self._rows_done(),
            total=self.settings.epochs * rows,
            begun=self._begun,
            epoch_rows=rows,
            loss=loss,
            evaluation=self._evaluation,
            evaluated=evaluated,
            waited=self._at.waited,
            metric=self.settings.metric,
        )
        try:
            self._callback(progress)
        except KeyboardInterrupt as interrupt:
            self._interrupt = type(interrupt)

    def _weights(self, order: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Return the weights of rows: those of the dataset times the ``row_weights``; None if all of them are 1."""
        weights = None if self._train_weights is None else self._train_weights[order]
        if self._row_weights is None:
            return weights
        row_weights = self._row_weights[self._rows[order]].astype(np.float32)
        return row_weights if weights is None else row_weights * weights

    def _rate(self) -> float:
        """Return the factor of the learning rates: constant, or falling to zero over all epochs."""
        left = 1 - self._rows_done() / (self.settings.epochs * len(self._train))
        falling = {"constant": 1.0, "linear": left, "cosine": math.sin(math.pi / 2 * left) ** 2}
        return max(falling[self.settings.schedule] * self.settings.learning_rate_scale, 1e-12)

    def evaluate(self) -> None:
        """Evaluate the model on the validation rows, and save it if it is the best so far."""
        measured = self._measure()
        settled = self._backend.model.is_settled(self._at.steps)
        selecting = measured.get(WITHOUT_TREES, measured[self.settings.metric])
        improved = self._improves(selecting)
        if improved:
            self._save_model(measured)
            self._at.best, self._at.waited = selecting if settled else None, 0
        else:
            self._at.waited += 1
        loss = self._at.loss / self._at.loss_rows if self._at.loss_rows else None
        self._evaluation = {
            "epoch": self._at.epoch + self._at.row / len(self._train),
            "step": self._at.steps,
            "training_loss": loss,
            "best": improved,
            **({} if settled else {"settled": False}),
            **measured,
        }
        self._at.loss, self._at.loss_rows = 0.0, 0
        self._at.evaluations += 1
        self._record(self._evaluation)
        self._report(math.nan if loss is None else loss, evaluated=True)

    def _measure(self) -> dict[str, Any]:
        return self._evaluate_validation(self._score_validation())

    def _evaluate_validation(self, logits: NDArray[np.float32]) -> dict[str, Any]:
        """Return the metrics of the model with its trees, if it has some, and the metric that selects the best state.

        The model without trees is selected. With them, the metric changes so little that training would stop too early.
        """
        split, labels = self._dataset.validation, np.asarray(self._dataset.validation.labels)
        blended = self._trees.blend(logits, split.encoded, labels, split.weights)
        measured = metrics.evaluate(labels, sigmoid(blended), split.weights)
        if self._trees.share is None:
            return measured
        own = metrics.evaluate(labels, sigmoid(logits), split.weights)
        return {**measured, "tree_share": self._trees.share, WITHOUT_TREES: own[self.settings.metric]}

    def _save_model(self, measured: dict[str, Any]) -> None:
        rate = self._dataset.negative_rate
        weights = self._finish(dict(self._backend.weights()))
        save_model(self._path / MODEL, self._backend.model, weights, *self._encoder, measured, rate)

    def _finish(self, weights: dict[str, Any]) -> Saved:
        """Return the weights that the model file stores from those that are trained."""
        return self._trees.finish({**weights, "bias": np.asarray(weights["bias"] + self._shift)})

    def _record(self, evaluation: dict[str, Any]) -> None:
        append_history(self._path / HISTORY, evaluation)

    def _improves(self, value: float) -> bool:
        if self._at.best is None:
            return True
        return value > self._at.best if HIGHER_IS_BETTER[self.settings.metric] else value < self._at.best

    def _score_validation(self) -> NDArray[np.float32]:
        """Return the logits of the validation rows, without trees."""
        rows = self._trees.seen(self._dataset.validation.encoded)
        starts = range(0, len(rows), EVALUATION_ROWS)
        with self._damaged_rows("validation"):
            logits = [self._backend.score(rows[start : start + EVALUATION_ROWS]) for start in starts]
        return np.concatenate(logits) + self._shift

    @contextlib.contextmanager
    def _damaged_rows(self, split: str) -> Iterator[None]:
        """Report ids or lists that are out of range, which only a damaged file contains."""
        try:
            yield
        except IndexError as error:
            raise Fm2Error(f"train: {self._dataset.path} is damaged in the split '{split}': {error}") from error

    def _save_checkpoint(self) -> None:
        begun = time.monotonic()
        self._write_checkpoint({"position": asdict(self._at), "fingerprint": self._fingerprint})
        self._saved = time.monotonic()
        self._saving = self._saved - begun

    def _write_checkpoint(self, values: dict[str, Any]) -> None:
        save_arrays(self._path / CHECKPOINT, self._backend.state(), values)
