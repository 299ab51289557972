"""deepctr-torch, trained as in its documentation. `make peers` installs it into .peers/deepctr."""

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
from datasets import open_first_rows
from fm2.data.dataset import Split
from fm2.evaluation import metrics
from processes import in_fresh_process

INSTALLED = Path(__file__).parents[1] / ".peers/deepctr"


@dataclass(frozen=True)
class DeepCtr(Contender):
    """A network of deepctr-torch with Adam, default learning rate and L2, and all rows in memory."""

    data: Path
    rows: int
    threads: int
    name: str
    dim: int
    options: dict[str, Any] = field(hash=False)
    batch_rows: int
    epochs: int

    def time(self) -> Timed:
        """Train, and return the fastest epoch after the first."""
        dataset = open_first_rows(self.data, self.rows)
        model = self._make(dataset.field_sizes)
        clock = _Clock()
        self._fit(model, dataset.train, self.epochs, clock)
        return Timed(self.rows, min(clock.seconds[1:]))

    def best(self, seed: int) -> dict[str, float]:
        """Train with early stopping in a fresh process; return the best epoch's test metrics."""
        return in_fresh_process(_Best(self, seed))[0]

    def best_here(self, seed: int) -> dict[str, float]:
        """Train with early stopping in this process; return the best epoch's test metrics."""
        dataset = open_first_rows(self.data, self.rows)
        model = self._make(dataset.field_sizes, seed)
        lowest, best = float("inf"), {}
        for _ in range(self.epochs):
            self._fit(model, dataset.train, 1)
            loss = self._evaluate(model, dataset.validation)["log_loss"]
            if loss >= lowest:
                break
            lowest, best = loss, self._evaluate(model, dataset.test)
        return best

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
        probabilities = model.predict(_columns(split), 16_384).ravel()
        return metrics.evaluate(split.labels, probabilities)


@dataclass(frozen=True)
class _Best:
    """A call of ``best_here`` that can be pickled for another process."""

    contender: DeepCtr
    seed: int

    def __call__(self) -> dict[str, float]:
        return self.contender.best_here(self.seed)


class _Clock:
    """A callback of deepctr-torch that times every epoch."""

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
    """Import deepctr-torch without its check for a newer version, which would use the network."""
    if not INSTALLED.exists():
        raise fm2.Fm2Error("deepctr-torch is not installed; run make peers")
    if str(INSTALLED) not in sys.path:
        sys.path.append(str(INSTALLED))
    with mock.patch("threading.Thread"):
        import deepctr_torch.inputs
        import deepctr_torch.models
    return deepctr_torch
