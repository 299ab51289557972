"""FFM, Poly2 and LR on the CPU: native code scores a row, finds its gradient and moves its weights in one go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2 import _native
from fm2.artifacts.arrays import Arrays, ChunkedArray, Stored
from fm2.artifacts.settings import Settings
from fm2.models import FFM, Model, Poly2
from fm2.models.initial import fill_normal, generator
from fm2.models.lr import LR
from fm2.training import tables
from fm2.training.backend import Backend, Floats, Ids, to_numpy
from fm2.training.native_backend import initial_state, make_optimizer

PIECE = 1 << 14  # features whose vectors are copied at once
CELLS = 1 << 20


def trains_rowwise(settings: Settings) -> bool:
    """Tell whether native code can train the model row after row as the settings ask; torch can where it cannot."""
    linear = ("adagrad", "ftrl")
    rules = {"ffm": ("adagrad",), "poly2": linear, "lr": linear}.get(settings.model, ())
    plain = not (settings.ema_decay or (settings.l2 and settings.l2_power))
    return settings.device == "cpu" and settings.optimizer in rules and plain


def slow_path_warning(settings: Settings) -> str | None:
    """Say which setting keeps FFM or Poly2 from their native kernels, if one does."""
    if settings.model not in ("ffm", "poly2") or settings.device != "cpu" or trains_rowwise(settings):
        return None
    reason = (
        "ema_decay"
        if settings.ema_decay
        else "l2_power"
        if settings.l2_power
        else f"the optimizer {settings.optimizer}"
    )
    return f"native code trains {settings.model} without {reason}; with it torch does, many times slower"


class RowwiseBackend(Backend):
    """Every row moves the weights by its own gradient; how many rows a step has does not matter."""

    _native: Any

    def __init__(self, model: Model, settings: Settings) -> None:
        super().__init__(model, settings)
        self._batch = tables.minibatch(model.field_sizes)
        self._rule = make_optimizer(settings)

    def step(self, ids: Ids, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float) -> float:
        self.steps += 1
        self._batch.load(ids, order, self.settings.threads)
        self._rule.learning_rate = self.settings.learning_rate * rate
        loss: float = self._native.step(self._batch, labels, weights, self._rule, self._rule, self.settings.threads)
        return loss

    def logits(self, ids: Ids) -> Floats:
        self._batch.load(np.ascontiguousarray(ids), None, self.settings.threads)
        logits = np.empty(len(ids), np.float32)
        self._native.score(self._batch, logits, self.settings.threads)
        return logits

    @abstractmethod
    def state(self) -> Arrays:
        """Give the arrays that the model lives in, not copies of them."""

    def load(self, state: Stored, steps: int) -> None:
        self.steps = steps
        for name, values in self.state().items():
            values[:] = state[name]


class FFMBackend(RowwiseBackend):
    """Drives a field-aware factorization machine, whose vectors and sums of squares stand in a table of its own.

    The weights are the model's, or, if they are not ``drawn`` yet, those it would draw: the table is large, and is not
    to be there twice.
    """

    model: FFM

    def __init__(self, model: FFM, settings: Settings, drawn: bool = True) -> None:
        super().__init__(model, settings)
        layout = _native.FfmLayout(np.array(model.field_sizes, np.int32), model.dim)
        self._table = tables.aligned_zeros(layout.floats)
        self._bias = np.array([model.bias.item(), settings.initial_accumulator], np.float32)
        self._native = _native.Ffm(layout, self._table, self._bias)
        self._shape = (layout.features, len(model.field_sizes) - 1, model.dim)
        source = None if drawn else generator(settings.seed)
        for begin, end in self._pieces():
            self._write(begin, end, source)

    def _pieces(self) -> Iterator[tuple[int, int]]:
        features = self._shape[0]
        yield from ((begin, min(begin + PIECE, features)) for begin in range(0, features, PIECE))

    def _write(self, begin: int, end: int, source: torch.Generator | None) -> None:
        vectors = self.model.embedding.weight.detach().view(self._shape)[begin:end]
        if source is not None:
            vectors = torch.empty(vectors.shape)
            fill_normal(vectors, self.settings.embedding_std, source)
        linear = to_numpy(self.model.linear.weight)[begin:end]
        squares = self.settings.initial_accumulator
        self._native.write(to_numpy(vectors), linear, squares, begin, self.settings.threads)

    def _read(self, begin: int, end: int) -> tuple[Floats, Floats]:
        vectors, linear = np.empty((end - begin, *self._shape[1:]), np.float32), np.empty(end - begin, np.float32)
        self._native.read(vectors, linear, begin, self.settings.threads)
        return vectors, linear

    def weights(self) -> dict[str, NDArray[Any] | ChunkedArray]:
        linear = np.concatenate([self._read(begin, end)[1] for begin, end in self._pieces()])
        vectors = ChunkedArray(
            self.model.embedding.weight.numel(), lambda: (self._read(*piece)[0] for piece in self._pieces())
        )
        return {"bias": self._bias[0], "linear.weight": linear, "embedding.weight": vectors}

    def state(self) -> Arrays:
        return {"ffm.table": self._table, "ffm.bias": self._bias}


class Poly2Backend(RowwiseBackend):
    """Drives a degree-2 polynomial, or LR, which has no pairs; what the rule remembers of a weight stands beside it."""

    def __init__(self, model: Poly2 | LR, settings: Settings) -> None:
        super().__init__(model, settings)
        cell = _native.Poly2.cell(self._rule)
        weights = {name: to_numpy(table.weight) for name, table in model.tables.items()}
        self._cells = {name: tables.aligned_zeros(len(w) * cell).reshape(-1, cell) for name, w in weights.items()}
        self._cells["bias"] = np.zeros((1, cell), np.float32)
        for name, values in (weights | {"bias": to_numpy(model.bias)}).items():
            self._cells[name][:, 0] = values
            self._cells[name][:, 1] = initial_state(settings, values, plain=name == "bias")
        hash_bits = model.hash_bits if isinstance(model, Poly2) else 0
        pairs = self._cells.get("pairs", np.empty((0, cell), np.float32))
        sizes = np.array(model.field_sizes, np.int32)
        self._native = _native.Poly2(sizes, hash_bits, pairs, self._cells["linear"], self._cells["bias"][0])

    def weights(self) -> dict[str, NDArray[Any] | ChunkedArray]:
        weights: dict[str, NDArray[Any] | ChunkedArray] = {"bias": self._cells["bias"][0, 0]}
        return weights | {f"{name}.weight": _weights_of(self._cells[name]) for name in self.model.tables}

    def state(self) -> Arrays:
        return {f"cells.{name}": cells for name, cells in self._cells.items()}


def _weights_of(cells: Floats) -> ChunkedArray:
    """Give the first numbers of cells, some at a time."""
    return ChunkedArray(len(cells), lambda: (cells[begin : begin + CELLS, 0] for begin in range(0, len(cells), CELLS)))
