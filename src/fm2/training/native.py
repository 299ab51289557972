"""Training on the CPU: native code looks batches up in the tables and moves their rows; torch does what is dense."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fm2.models import FactorizationMachine, GatheredModel
from fm2.models.lr import LR
from fm2.training import tables
from fm2.training.checkpoints import Arrays
from fm2.training.settings import Settings
from fm2.training.stepper import DenseOptimiser, Floats, Ids, Stepper, to_numpy
from fm2.training.tables import Dropout, Optimiser, Table


class NativeStepper(Stepper):
    """Drives a model that is scored from gathered rows.

    LR and FM need no rows side by side: their logits come straight from the tables, and so do their gradients.
    ``l2_scale`` multiplies the l2 of each feature.
    """

    model: GatheredModel

    def __init__(self, model: GatheredModel, settings: Settings, l2_scale: Floats) -> None:
        super().__init__(model, settings)
        self._optimisers = {name: make_optimiser(settings) for name in model.tables}
        self._tables = {
            name: Table(
                table.field_sizes,
                table.dims,
                self._optimisers[name],
                weights=to_numpy(table.weight),
                decay=settings.average,
                l2_scale=l2_scale,
            )
            for name, table in model.tables.items()
        }
        for name, table in model.tables.items():
            _remember(self._tables[name], settings, l2_scale)
            table.weight.data = torch.from_numpy(self._tables[name].weights)
        sparse = {f"{name}.weight" for name in self._tables}
        self._dense = DenseOptimiser({n: p for n, p in model.named_parameters() if n not in sparse}, settings)
        drops = settings.dropout or settings.field_dropout
        self._dropout = Dropout(settings.dropout, settings.field_dropout, settings.seed) if drops else None
        self._batch = tables.minibatch(model.field_sizes)
        fm = isinstance(model, FactorizationMachine) and model.name == "fm" and model.field_linear is None
        self._averages: tuple[int, dict[str, Table]] | None = None
        self._fused = isinstance(model, LR) or (fm and not self._dropout)

    def step(self, ids: Ids, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float) -> float:
        self.steps += 1
        self._averages = None
        self._batch.load(ids, order, self.settings.threads)
        for optimiser in self._optimisers.values():
            optimiser.learning_rate = self.settings.learning_rate * rate
        loss, updates = (self._fused_step if self._fused else self._gathered_step)(labels, weights)
        tables.update(self._batch, updates, self.steps, self.settings.threads)
        self._dense.step(rate)
        return loss

    def _fused_step(self, labels: Floats, weights: Floats | None) -> tuple[float, list[tables.Update]]:
        logits, sums = self._fused_logits(self._tables)
        loss, slope = tables.log_loss(logits + np.float32(self.model.bias.item()), labels, weights)
        self.model.bias.grad = torch.tensor(slope.sum())
        updates = [self._tables["linear"].by_logits(slope)]
        if sums is not None:
            updates.append(self._tables["embedding"].by_sums(slope, sums))
        return loss, updates

    def _fused_logits(self, found: dict[str, Table]) -> tuple[Floats, Floats | None]:
        if "embedding" not in found:
            return tables.linear_logits(found["linear"], self._batch, threads=self.settings.threads), None
        return tables.fm_logits(found["linear"], found["embedding"], self._batch, self.settings.threads)

    def _gathered_step(self, labels: Floats, weights: Floats | None) -> tuple[float, list[tables.Update]]:
        rows = {name: torch.from_numpy(self._gather(name, table)) for name, table in self._tables.items()}
        for values in rows.values():
            values.requires_grad_()
        logits = self.model.score(**rows)
        loss, slope = tables.log_loss(to_numpy(logits), labels, weights)
        logits.backward(torch.from_numpy(slope))  # type: ignore[no-untyped-call]
        updates = []
        for name, table in self._tables.items():
            gradient = rows[name].grad
            assert gradient is not None
            updates.append(table.by_rows(to_numpy(gradient.contiguous()), self._drops(name)))
        return loss, updates

    def _gather(self, name: str, table: Table) -> Floats:
        return table.gather(self._batch, dropout=self._drops(name), step=self.steps, threads=self.settings.threads)

    def _drops(self, name: str) -> Dropout | None:
        return self._dropout if name == "embedding" else None

    def logits(self, ids: Ids) -> Floats:
        self._batch.load(np.ascontiguousarray(ids), None, self.settings.threads)
        averaged = self._averaged()
        dense = self._dense.averages()
        if self._fused:
            return self._fused_logits(averaged)[0] + np.float32(dense["bias"].item())
        rows = {n: torch.from_numpy(t.gather(self._batch, threads=self.settings.threads)) for n, t in averaged.items()}
        with torch.no_grad(), self._dense.averaged():
            return to_numpy(self.model.score(**rows))

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

    def load(self, state: Arrays, steps: int) -> None:
        self.steps = steps
        self._dense.load(state, steps)
        for name, table in self._tables.items():
            for key, values in _parts(table).items():
                values[:] = state[f"table.{name}.{key}"]


def make_optimiser(settings: Settings) -> Optimiser:
    """Make the rule that moves the tables."""
    rate, l2 = settings.learning_rate, settings.l2
    if settings.optimiser == "ftrl":
        return tables.ftrl(rate, l1=settings.l1, l2=l2)
    if settings.optimiser == "adam":
        return tables.adam(rate, l2=l2)
    return tables.adagrad(rate, l2=l2)


def _remember(table: Table, settings: Settings, l2_scale: Floats) -> None:
    """Set what the rule remembers before the first step; FTRL has to remember why the weights are what they are."""
    if settings.optimiser == "adagrad":
        table.state[0][:] = settings.initial_squares
    if settings.optimiser == "ftrl":
        pull = table.optimiser.beta / settings.learning_rate + settings.l2 * l2_scale
        table.state[0][:] = -table.weights * pull - np.sign(table.weights) * np.float32(settings.l1)


def _parts(table: Table) -> Arrays:
    """Give all that a table has to remember."""
    parts: Arrays = {"weights": table.weights}
    parts |= {f"state{i}": values for i, values in enumerate(table.state)}
    if table.average is not None and table.touched is not None:
        parts |= {"average": table.average, "touched": table.touched}
    return parts
