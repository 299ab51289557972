"""Row-by-row training on the CPU: native code scores a row, computes its gradient and updates its weights at once."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Dropout, Optimizer
from fm2.artifacts.arrays import Arrays, ChunkedArray, Stored
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.models import FFM, LR, Model, Poly2
from fm2.models.initial import fill_normal, generator
from fm2.training import tables
from fm2.training.backend import Backend, Floats, to_numpy
from fm2.training.hidden import Hidden
from fm2.training.optimizers import initial_state, make_optimizer

PIECE = 1 << 14  # features whose vectors are copied at once
CELLS = 1 << 20

Weights = dict[str, NDArray[Any] | ChunkedArray]


class RowwiseKernel(ABC):
    """A model's weights in the layout of a native kernel. For scoring, it needs no optimizer state."""

    _native: Any

    def __init__(self, model: Model, threads: int) -> None:
        self._batch, self._threads = tables.minibatch(model.field_sizes), threads

    def load(self, rows: EncodedRows, order: NDArray[np.int64], dropout: Dropout, step: int) -> None:
        """Load the rows ``rows[order]``, for the next :meth:`learn`."""
        tables.load_batch(self._batch, rows, order, self._threads, dropout, step)

    def learn(self, labels: Floats, weights: Floats | None, optimizer: Optimizer) -> float:
        """Learn from the loaded rows one after the other and return their mean loss."""
        with _errors_for_users():
            loss: float = self._native.step(self._batch, labels, weights, optimizer, optimizer, self._threads)
        return loss

    def score(self, rows: EncodedRows) -> Floats:
        """Return the logits of rows."""
        tables.load_batch(self._batch, rows, None, self._threads)
        logits = np.empty(len(rows), np.float32)
        with _errors_for_users():
            self._native.score(self._batch, logits, self._threads)
        return logits

    @abstractmethod
    def weights(self) -> Weights:
        """Return the model's parameters by name."""

    @abstractmethod
    def state(self) -> Arrays:
        """Return the arrays that the kernel works on, not copies."""


class FieldAwareKernel(RowwiseKernel):
    """FFM: one table holds the vectors and linear weights with their sums of squares.

    ``accumulator`` is the initial sum of squares. A ``source`` draws the vectors here instead of in the model, because
    the table is too large to exist twice.
    """

    def __init__(
        self, model: FFM, threads: int, accumulator: float = 0.0, source: torch.Generator | None = None
    ) -> None:
        super().__init__(model, threads)
        layout = _native.FfmLayout(np.array(model.field_sizes, np.int32), model.dim)
        self._model = model
        self._table = tables.aligned_zeros(layout.floats)
        self._bias = np.array([model.bias.item(), accumulator], np.float32)
        self._native = _native.Ffm(layout, self._table, self._bias)
        self._shape = (layout.features, len(model.field_sizes) - 1, model.dim)
        for begin, end in self._pieces():
            vectors = model.embedding.weight.detach().view(self._shape)[begin:end]
            if source is not None:
                vectors = torch.empty(vectors.shape)
                fill_normal(vectors, model.config["embedding_std"], source)
            linear = to_numpy(model.linear.weight)[begin:end]
            self._native.write(to_numpy(vectors), linear, accumulator, begin, threads)

    @classmethod
    def for_training(cls, model: FFM, settings: Settings, initialized: bool) -> FieldAwareKernel:
        """Create a kernel with the optimizer's initial state; it draws the vectors of a model without any."""
        source = None if initialized else generator(settings.seed)
        return cls(model, settings.threads, settings.initial_accumulator, source)

    def _pieces(self) -> Iterator[tuple[int, int]]:
        features = self._shape[0]
        yield from ((begin, min(begin + PIECE, features)) for begin in range(0, features, PIECE))

    def _read(self, begin: int, end: int) -> tuple[Floats, Floats]:
        vectors, linear = np.empty((end - begin, *self._shape[1:]), np.float32), np.empty(end - begin, np.float32)
        self._native.read(vectors, linear, begin, self._threads)
        return vectors, linear

    def weights(self) -> Weights:
        linear = np.concatenate([self._read(begin, end)[1] for begin, end in self._pieces()])
        vectors = ChunkedArray(
            self._model.embedding.weight.numel(), lambda: (self._read(*piece)[0] for piece in self._pieces())
        )
        return {"bias": self._bias[0], "linear.weight": linear, "embedding.weight": vectors}

    def state(self) -> Arrays:
        return {"ffm.table": self._table, "ffm.bias": self._bias}


class PolynomialKernel(RowwiseKernel):
    """Poly2, and LR as a polynomial without pairs: every weight is stored in a cell with its optimizer state.

    ``width`` is the number of floats per cell. ``first_state`` computes the initial state of some weights; the flag
    says whether they are regularized.
    """

    def __init__(
        self,
        model: Poly2 | LR,
        threads: int,
        width: int = 1,
        first_state: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(model, threads)
        weights = {name: to_numpy(table.weight) for name, table in model.tables.items()}
        self._cells = {name: tables.aligned_zeros(len(w) * width).reshape(-1, width) for name, w in weights.items()}
        self._cells["bias"] = np.zeros((1, width), np.float32)
        for name, values in (weights | {"bias": to_numpy(model.bias)}).items():
            self._cells[name][:, 0] = values
            if first_state is not None:
                self._cells[name][:, 1] = first_state(values, regularized=name != "bias")
        hash_bits = model.hash_bits if isinstance(model, Poly2) else 0
        pairs = self._cells.get("pairs", np.empty((0, width), np.float32))
        sizes = np.array(model.field_sizes, np.int32)
        self._native = _native.Poly2(sizes, hash_bits, pairs, self._cells["linear"], self._cells["bias"][0])

    @classmethod
    def for_training(cls, model: Poly2 | LR, settings: Settings, initialized: bool) -> PolynomialKernel:
        """Create a kernel with the optimizer's initial state. The weights start at zero, so nothing is drawn."""
        first_state = functools.partial(initial_state, settings)
        return cls(model, settings.threads, _native.Poly2.cell(make_optimizer(settings)), first_state)

    def weights(self) -> Weights:
        tables = {f"{name}.weight": _weights_of(cells) for name, cells in self._cells.items() if name != "bias"}
        return {"bias": self._cells["bias"][0, 0], **tables}

    def state(self) -> Arrays:
        return {f"cells.{name}": cells for name, cells in self._cells.items()}


KERNELS: dict[str, Any] = {"field_aware": FieldAwareKernel, "polynomial": PolynomialKernel}


class RowwiseBackend(Backend):
    """Every row updates the weights by its own gradient, so the size of a batch does not matter."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        initialized: bool = True,
        numbers: Sequence[int] = (),
        hidden: Hidden | None = None,
    ) -> None:
        super().__init__(model, settings, numbers, hidden)
        assert model.spec.rowwise is not None
        self.kernel: RowwiseKernel = KERNELS[model.spec.rowwise.kernel].for_training(model, settings, initialized)
        self._optimizer = make_optimizer(settings)
        self._dropout = self.make_dropout()

    def step(
        self, rows: EncodedRows, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float
    ) -> float:
        self.steps += 1
        self._optimizer.learning_rate = self.settings.learning_rate * rate
        self.kernel.load(rows, order, self._dropout, self.steps)
        return self.kernel.learn(labels, weights, self._optimizer)

    def score(self, rows: EncodedRows) -> Floats:
        return self.kernel.score(rows)

    def weights(self) -> Weights:
        return self.kernel.weights()

    def state(self) -> Arrays:
        return self.kernel.state()

    def load(self, state: Stored, steps: int) -> None:
        self.steps = steps
        for name, values in self.state().items():
            values[:] = state[name]


@contextmanager
def _errors_for_users() -> Iterator[None]:
    """Report rows that a kernel rejects, such as those with too many pairs of values, as errors of the user's data."""
    try:
        yield
    except ValueError as error:
        raise Fm2Error(str(error)) from error


def _weights_of(cells: Floats) -> ChunkedArray:
    """Return the first number of every cell, in chunks."""
    return ChunkedArray(len(cells), lambda: (cells[begin : begin + CELLS, 0] for begin in range(0, len(cells), CELLS)))
