"""The loop that fits any model: epochs of shuffled batches, evaluations, the best model, checkpoints."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import open_arrays, save_arrays
from fm2.artifacts.history import append_history, read_history, write_history
from fm2.artifacts.model_file import MODEL, save_model
from fm2.artifacts.run_directory import CHECKPOINT, HISTORY
from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset, Split
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.evaluation import metrics
from fm2.evaluation.metrics import sigmoid
from fm2.training.backend import Backend
from fm2.training.shuffling import shuffled

CHECKPOINT_SECONDS = 60.0
EVALUATION_ROWS = 16_384
RUNAWAY_LOSS = 1e3
HIGHER_IS_BETTER = {"log_loss": False, "auc": True, "rig": True}


@dataclass
class Position:
    """Where a training is: this, the backend's state and the settings decide all that follows."""

    epoch: int = 0
    row: int = 0
    steps: int = 0
    evaluations: int = 0
    best: float | None = None
    waited: int = 0
    loss: float = 0.0
    loss_rows: int = 0


@dataclass(frozen=True)
class Report:
    """What a watcher is told: how far the training is, and the last evaluation.

    ``begun`` is the rows that were done before, by a run that is resumed now; ``epoch_rows`` those of an epoch.
    There is a report after every step, and one more after every evaluation, which says that it was ``evaluated`` just
    now. A model that has seen no rows yet has no loss: it is NaN. ``waited`` counts the evaluations since the last
    improvement of ``metric``.
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


class TrainingLoop:
    """Trains until the epochs are over, or until no evaluation has been better for as long as patience lasts.

    ``fingerprint`` tells data, row weights and first weights from others: only with the same can a run be resumed.
    """

    def __init__(
        self,
        backend: Backend,
        dataset: Dataset,
        vocabularies: Sequence[Vocabulary],
        path: Path,
        watch: Callable[[Report], None],
        row_weights: NDArray[np.float32] | None = None,
        fingerprint: dict[str, str | None] | None = None,
    ) -> None:
        self._backend, self._dataset, self._path, self._watch = backend, dataset, path, watch
        self._encoder = (dataset.schema, vocabularies)
        self.settings: Settings = backend.settings
        self._train = dataset.train
        self._labels, self._rows = np.asarray(self._train.labels), np.asarray(self._train.rows)
        self._row_weights, self._fingerprint = row_weights, fingerprint or {}
        self._at = Position()
        self._evaluation: dict[str, Any] | None = None
        self._saved = time.monotonic()
        self._interrupted, self._begun = False, 0
        check_splits(dataset)

    def resume(self) -> None:
        """Go on from the last checkpoint, or begin anew if there is none."""
        if not (self._path / CHECKPOINT).is_file():
            write_history(self._path / HISTORY, [])
            return
        with open_arrays(self._path / CHECKPOINT) as (arrays, values):
            for name, now in self._fingerprint.items():
                if values["fingerprint"].get(name) != now:
                    raise Fm2Error(f"train: the run in {self._path} had {name}; give the same to resume it")
            self._at = Position(**values["position"])
            self._backend.load(arrays, self._at.steps)
        history = read_history(self._path / HISTORY)[: self._at.evaluations]
        self._evaluation = history[-1] if history else None
        write_history(self._path / HISTORY, history)

    def run(self, learned: bool = False) -> None:
        """Train to the end. Interrupted, it finishes what it is at, and writes a checkpoint.

        What has ``learned`` elsewhere is evaluated before it learns more, for it may be the best there will be.
        """
        if learned and not self._at.steps:
            self._evaluate()
        self._begun = self._at.epoch * len(self._train) + self._at.row
        with self._interrupts():
            while self._at.epoch < self.settings.epochs and self._at.waited < self.settings.patience:
                self._run_epoch()
        self._save_checkpoint()

    def keep(self) -> None:
        """Evaluate the model as it begins, and learn nothing."""
        self._evaluate()

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Let Ctrl-C wait for the end of a step, so that nothing is left half done; a second one does not wait."""

        def remember(number: int, frame: FrameType | None) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, remember)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _run_epoch(self) -> None:
        rows, batch = len(self._train), self.settings.batch_size
        pauses = {
            rows * (i + 1) // self.settings.evaluations_per_epoch // batch * batch
            for i in range(self.settings.evaluations_per_epoch - 1)
        }
        for order in shuffled(rows, [self.settings.seed, self._at.epoch], batch, skip=self._at.row):
            self._step(order)
            if self._at.row in pauses or self._at.row == rows:
                self._evaluate()
            if self._interrupted or time.monotonic() - self._saved > CHECKPOINT_SECONDS:
                self._save_checkpoint()
            if self._interrupted:
                raise KeyboardInterrupt
            if self._at.waited >= self.settings.patience:
                break
        if self._at.row == rows:
            self._at.epoch, self._at.row = self._at.epoch + 1, 0

    def _step(self, order: NDArray[np.int64]) -> None:
        labels = self._labels[order].astype(np.float32)
        weights = self._weights(order, labels)
        loss = 0.0
        if weights is None or weights.any():
            loss = self._backend.step(self._train.ids, order, labels, weights, self._rate())
        self._at.row += len(order)
        self._at.steps = self._backend.steps
        self._at.loss += loss * len(order)
        self._at.loss_rows += len(order)
        if not loss < RUNAWAY_LOSS:
            kept = "the best model so far is kept" if self._at.best is not None else "nothing was learned"
            raise Fm2Error(
                f"train: the loss is {loss:.3g} at step {self._at.steps}; lower --learning-rate "
                f"and --overwrite the run ({kept})"
            )
        self._report(self._at.loss / self._at.loss_rows)

    def _report(self, loss: float, evaluated: bool = False) -> None:
        rows = len(self._train)
        done, total = self._at.epoch * rows + self._at.row, self.settings.epochs * rows
        try:
            state = (done, total, self._begun, rows, loss, self._evaluation, evaluated)
            self._watch(Report(*state, waited=self._at.waited, metric=self.settings.metric))
        except KeyboardInterrupt:
            self._interrupted = True

    def _weights(self, order: NDArray[np.int64], labels: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Give the rows' own weights times those of their classes; None where all are 1."""
        positive = np.float32(self.settings.positive_weight)
        weights = None if positive == 1 else np.where(labels > 0, positive, np.float32(1))
        if self._row_weights is None:
            return weights
        own = self._row_weights[self._rows[order]].astype(np.float32)
        return own if weights is None else own * weights

    def _rate(self) -> float:
        """Give the factor of the learning rates: constant, or falling to zero over all epochs."""
        done = self._at.epoch * len(self._train) + self._at.row
        left = 1 - done / (self.settings.epochs * len(self._train))
        falling = {"constant": 1.0, "linear": left, "cosine": math.sin(math.pi / 2 * left) ** 2}
        return max(falling[self.settings.schedule] * self.settings.learning_rate_scale, 1e-12)

    def _evaluate(self) -> None:
        found = metrics.evaluate(
            self._dataset.validation.labels, probabilities(self._backend, self._dataset.validation)
        )
        value = found[self.settings.metric]
        better = self._at.best is None or (value > self._at.best) == HIGHER_IS_BETTER[self.settings.metric]
        better = better and value != self._at.best
        settled = self._backend.model.is_settled(self._at.steps)
        if better:
            save_model(self._path / MODEL, self._backend.model, self._backend.weights(), *self._encoder, found)
            self._at.best, self._at.waited = value if settled else None, 0
        else:
            self._at.waited += 1
        loss = self._at.loss / self._at.loss_rows if self._at.loss_rows else None
        self._evaluation = {
            "epoch": self._at.epoch + self._at.row / len(self._train),
            "step": self._at.steps,
            "training_loss": loss,
            "best": better,
            **({} if settled else {"settled": False}),
            **found,
        }
        self._at.loss, self._at.loss_rows = 0.0, 0
        self._at.evaluations += 1
        append_history(self._path / HISTORY, self._evaluation)
        self._report(math.nan if loss is None else loss, evaluated=True)

    def _save_checkpoint(self) -> None:
        values = {"position": asdict(self._at), "fingerprint": self._fingerprint}
        save_arrays(self._path / CHECKPOINT, self._backend.state(), values)
        self._saved = time.monotonic()


def check_splits(dataset: Dataset, operation: str = "train", measured: str = "validation") -> None:
    """Refuse what could not be trained, evaluated, or ``measured`` at the end, before anything is written."""
    purposes = {"train": "training", "validation": "validation", measured: measured}
    for split, purpose in ((dataset.split(name), purpose) for name, purpose in purposes.items()):
        if len(split) == 0:
            raise Fm2Error(f"{operation}: {dataset.path} has no rows for {purpose}; prepare it with other --fractions")
        if split.labels.min() == split.labels.max():
            raise Fm2Error(
                f"{operation}: all rows of {dataset.path} for {purpose} have the label {split.labels[0]}; "
                "prepare it with both, or with other --fractions"
            )


def probabilities(backend: Backend, split: Split) -> NDArray[np.float64]:
    """Score a whole split, some rows at a time."""
    parts = [
        backend.logits(split.ids[start : start + EVALUATION_ROWS]) for start in range(0, len(split), EVALUATION_ROWS)
    ]
    return sigmoid(np.concatenate(parts))
