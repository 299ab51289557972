"""Networks of pip's deepctr-torch, trained as its documentation shows; `make peers` puts it into .peers/deepctr."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

import fm2
from contenders import Contender, Timed
from fm2.data.dataset import Split
from fm2.evaluation import metrics
from generated import open_shortened
from processes import in_fresh_process

PLACE = Path(__file__).parents[1] / ".peers/deepctr"


@dataclass(frozen=True)
class DeepCtr(Contender):
    """A network of deepctr-torch's: by Adam at its usual rate, with its usual L2, on all rows in memory."""

    data: Path
    rows: int
    threads: int
    name: str
    dim: int
    options: dict[str, Any] = field(hash=False)
    batch_rows: int
    epochs: int

    def time(self) -> Timed:
        """Train, and take the best of the epochs after the first."""
        dataset = open_shortened(self.data, self.rows)
        model = self._make(dataset.field_sizes)
        clock = _Clock()
        self._fit(model, dataset.train, self.epochs, clock)
        return Timed(self.rows, min(clock.seconds[1:]))

    def best(self, seed: int) -> dict[str, float]:
        """Train in a fresh process until an epoch is no better on validation; give the best epoch's test figures."""
        return in_fresh_process(_Best(self, seed))[0]

    def train_to_the_best(self, seed: int) -> dict[str, float]:
        """Do so here."""
        dataset = open_shortened(self.data, self.rows)
        model = self._make(dataset.field_sizes, seed)
        least, found = float("inf"), {}
        for _ in range(self.epochs):
            self._fit(model, dataset.train, 1)
            reached = self._evaluate(model, dataset.validation)["log_loss"]
            if reached >= least:
                break
            least, found = reached, self._evaluate(model, dataset.test)
        return found

    def _make(self, field_sizes: list[int], seed: int = 0) -> Any:
        torch.set_num_threads(self.threads)
        deepctr = import_deepctr()
        columns = [
            deepctr.inputs.SparseFeat(f"f{number}", size, embedding_dim=self.dim)
            for number, size in enumerate(field_sizes)
        ]
        model = getattr(deepctr.models, self.name)(columns, columns, task="binary", seed=seed, **self.options)
        model.compile("adam", "binary_crossentropy", metrics=[])
        return model

    def _fit(self, model: Any, split: Split, epochs: int, *callbacks: Any) -> None:
        labels = np.asarray(split.labels, np.float32)
        with contextlib.redirect_stdout(io.StringIO()):
            model.fit(
                _columns(split), labels, self.batch_rows, epochs, verbose=0, shuffle=True, callbacks=list(callbacks)
            )

    def _evaluate(self, model: Any, split: Split) -> dict[str, float]:
        found = model.predict(_columns(split), 16_384).ravel()
        return metrics.evaluate(split.labels, found)


@dataclass(frozen=True)
class _Best:
    """A training to the best epoch, as another process can be given it."""

    contender: DeepCtr
    seed: int

    def __call__(self) -> dict[str, float]:
        return self.contender.train_to_the_best(self.seed)


class _Clock:
    """What deepctr-torch calls a callback: tells how long each epoch was."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begin = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds.append(time.perf_counter() - self._begin)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _columns(split: Split) -> dict[str, NDArray[np.int32]]:
    return {f"f{number}": column for number, column in enumerate(np.ascontiguousarray(split.ids.T))}


def import_deepctr() -> Any:
    """Import it, without the look at its newest version, for which it would ask the network."""
    if not PLACE.exists():
        raise fm2.Fm2Error("there is no deepctr-torch to compare with; make peers installs it")
    if str(PLACE) not in sys.path:
        sys.path.append(str(PLACE))
    with mock.patch("threading.Thread"):
        import deepctr_torch.inputs
        import deepctr_torch.models
    return deepctr_torch
