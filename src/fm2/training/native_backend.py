"""Training on the CPU: native code looks batches up in the tables and moves their rows; torch does what is dense."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2.artifacts.arrays import Arrays, Stored
from fm2.artifacts.settings import Settings
from fm2.models import FactorizationMachine, GatheredModel
from fm2.models.lr import LR
from fm2.training import tables
from fm2.training.backend import Backend, DenseOptimizer, Floats, Ids, to_numpy
from fm2.training.forward_backward import (
    AutogradForwardBackward,
    ForwardBackward,
    FusedForwardBackward,
    MatrixForwardBackward,
)
from fm2.training.tables import Dropout, Optimizer, Table

FTRL_BETA = 1.0


class NativeBackend(Backend):
    """Drives a model that is scored from gathered rows.

    LR and FM need no rows side by side: their logits come straight from the tables, and so do their gradients. FmFM's
    rows are gathered, and a native kernel makes the two products of matrices. What remains is autograd's.
    ``l2_scale`` multiplies the l2 of each feature.
    """

    model: GatheredModel

    def __init__(self, model: GatheredModel, settings: Settings, l2_scale: Floats) -> None:
        super().__init__(model, settings)
        self._optimizers = {name: make_optimizer(settings) for name in model.tables}
        self._tables = {
            name: Table(
                table.field_sizes,
                table.dims,
                self._optimizers[name],
                weights=to_numpy(table.weight),
                decay=settings.ema_decay,
                l2_scale=l2_scale,
            )
            for name, table in model.tables.items()
        }
        for name, table in model.tables.items():
            first = initial_state(settings, to_numpy(table.weight), l2_scale)
            if np.any(first):  # zeros take no memory until they are written
                self._tables[name].state[0][:] = first
            table.weight.data = torch.from_numpy(self._tables[name].weights)
        self._dense = DenseOptimizer(model, settings)
        drops = settings.dropout or settings.field_dropout
        self._dropout = Dropout(settings.dropout, settings.field_dropout, settings.seed) if drops else None
        self._batch = tables.minibatch(model.field_sizes)
        self._averages: tuple[int, dict[str, Table]] | None = None
        self._forward_backward = self._make_forward_backward(model)

    def _make_forward_backward(self, model: GatheredModel) -> ForwardBackward:
        threads = self.settings.threads
        if isinstance(model, LR):
            return FusedForwardBackward(model, threads)
        if isinstance(model, FactorizationMachine) and model.name == "fmfm":
            return MatrixForwardBackward(model, threads, self._dropout)
        if isinstance(model, FactorizationMachine) and model.name == "fm" and model.field_linear is None:
            return (
                FusedForwardBackward(model, threads)
                if self._dropout is None
                else AutogradForwardBackward(model, threads, self._dropout)
            )
        return AutogradForwardBackward(model, threads, self._dropout)

    def step(self, ids: Ids, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float) -> float:
        self.steps += 1
        self.model.begin_step(self.settings.seed, self.steps)
        self._averages = None
        self._batch.load(ids, order, self.settings.threads)
        for optimizer in self._optimizers.values():
            optimizer.learning_rate = self.settings.learning_rate * rate
        loss, updates = self._forward_backward.learn(self._batch, self._tables, self.steps, labels, weights)
        tables.update(self._batch, updates, self.steps, self.settings.threads)
        self._dense.step(rate)
        for name, gone in self.model.end_step(self.steps).items():
            self._clear(name, gone)
        return loss

    def _clear(self, name: str, gone: torch.Tensor) -> None:
        """Set weights to zero, with all that is remembered of them."""
        table = self._tables.get(name.removesuffix(".weight"))
        if table is None:
            self._dense.clear(name, gone)
            return
        for values in (table.weights, *table.state, table.average):
            if values is not None:
                torch.from_numpy(values).masked_fill_(gone, 0)

    def logits(self, ids: Ids) -> Floats:
        self._batch.load(np.ascontiguousarray(ids), None, self.settings.threads)
        self.model.eval()
        with torch.no_grad(), self._dense.averaged():
            return self._forward_backward.logits(self._batch, self._averaged())

    def _averaged(self) -> dict[str, Table]:
        """Give the averaged tables; they are made once after each step that is followed by a question."""
        if self._averages is None or self._averages[0] != self.steps:
            found = {name: table.averaged(self.steps, self.settings.threads) for name, table in self._tables.items()}
            self._averages = (self.steps, found)
        return self._averages[1]

    def weights(self) -> Arrays:
        dense = {name: to_numpy(value) for name, value in self._dense.averages().items()}
        return dense | {f"{name}.weight": table.weights for name, table in self._averaged().items()}

    def state(self) -> Arrays:
        arrays = self._dense.state()
        for name, table in self._tables.items():
            arrays |= {f"table.{name}.{key}": values for key, values in _parts(table).items()}
        return arrays

    def load(self, state: Stored, steps: int) -> None:
        self.steps = steps
        self._dense.load(state, steps)
        for name, table in self._tables.items():
            for key, values in _parts(table).items():
                values[:] = state[f"table.{name}.{key}"]


def make_optimizer(settings: Settings) -> Optimizer:
    """Make the rule that moves the tables."""
    rate, l2 = settings.learning_rate, settings.l2
    if settings.optimizer == "ftrl":
        return tables.ftrl(rate, FTRL_BETA, l1=settings.l1, l2=l2)
    if settings.optimizer == "adam":
        return tables.adam(rate, l2=l2)
    return tables.adagrad(rate, l2=l2)


def initial_state(settings: Settings, weights: Floats, l2_scale: Floats | float = 1.0, plain: bool = False) -> Any:
    """Give what the rule remembers first of the weights: FTRL has to know why they are what they are.

    A ``plain`` weight is not held back by l1 and l2.
    """
    if settings.optimizer == "adagrad":
        return settings.initial_accumulator
    if settings.optimizer == "adam":
        return 0.0
    l1, l2 = (0.0, 0.0) if plain else (settings.l1, settings.l2)
    pull = FTRL_BETA / settings.learning_rate + l2 * l2_scale
    return -weights * pull - np.sign(weights) * np.float32(l1)


def _parts(table: Table) -> Arrays:
    """Give all that a table has to remember."""
    parts: Arrays = {"weights": table.weights}
    parts |= {f"state{i}": values for i, values in enumerate(table.state)}
    if table.average is not None and table.touched is not None:
        parts |= {"average": table.average, "touched": table.touched}
    return parts
