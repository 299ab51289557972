"""Training on the CPU: native code gathers and updates table rows, torch handles the dense parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Optimizer
from fm2.artifacts.arrays import Arrays, Stored
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.models import GatheredModel
from fm2.training import tables
from fm2.training.backend import Backend, Floats, to_numpy
from fm2.training.forward_backward import make_forward_backward
from fm2.training.hidden import Hidden
from fm2.training.optimizers import DenseOptimizer, initial_state, make_optimizer, table_settings
from fm2.training.tables import EmbeddingTable, load_batch, table_state
from fm2.training.unknown import UnknownFeatures


class NativeBackend(Backend):
    """Trains a model that is scored from gathered rows. ``l2_scale`` multiplies the l2 of each table's features.

    The averages of tables with ``unknown`` features have these shrunk; the weights that training changes do not.
    """

    model: GatheredModel

    def __init__(
        self,
        model: GatheredModel,
        settings: Settings,
        l2_scale: dict[str, Floats],
        numbers: Sequence[int] = (),
        unknown: Mapping[str, UnknownFeatures] | None = None,
        hidden: Hidden | None = None,
    ) -> None:
        super().__init__(model, settings, numbers, hidden)
        self._unknown = unknown or {}
        self._optimizers, self._tables = dict[str, Optimizer](), dict[str, EmbeddingTable]()
        for name, table in model.tables.items():
            of_table = table_settings(settings, table)
            weights, optimizer = to_numpy(table.weight), make_optimizer(of_table)
            native = EmbeddingTable(
                table.field_sizes,
                table.dims,
                optimizer,
                weights=weights,
                decay=settings.ema_decay,
                l2_scale=l2_scale[name],
                offsets=table.offsets,
                keep_zeros=table.keep_zeros,
            )
            first = initial_state(of_table, weights, table.per_weight(l2_scale[name]))
            if np.any(first):  # untouched zeros take no memory
                native.state[0][:] = first
            table.weight.data = torch.from_numpy(native.weights)
            self._tables[name], self._optimizers[name] = native, optimizer
        self._dense = DenseOptimizer(model, settings)
        rates = settings.dropout, settings.field_dropout
        self._dropout = self.make_dropout(*rates)
        self._batch = tables.minibatch(model.field_sizes)
        self._averages: tuple[int, dict[str, EmbeddingTable]] | None = None
        self._forward_backward = make_forward_backward(model, settings.threads, self._dropout if any(rates) else None)

    def step(
        self, rows: EncodedRows, order: NDArray[np.int64], labels: Floats, weights: Floats | None, rate: float
    ) -> float:
        self.steps += 1
        self.model.begin_step(self.settings.seed, self.steps)
        self._averages = None
        load_batch(self._batch, rows, order, self.settings.threads, self._dropout, self.steps)
        for optimizer in self._optimizers.values():
            optimizer.learning_rate = self.settings.learning_rate * rate
        loss, updates = self._forward_backward.learn(self._batch, self._tables, self.steps, labels, weights)
        # The result is bit-for-bit the same for any number of threads.
        _native.update(self._batch, updates, self.steps, self.settings.threads)
        self._dense.step(rate)
        for name, mask in self.model.end_step(self.steps).items():
            self._clear(name, mask)
        return loss

    def _clear(self, name: str, mask: torch.Tensor) -> None:
        """Set weights to zero, together with the optimizer's state and the average."""
        table = self._tables.get(name.removesuffix(".weight"))
        if table is None:
            self._dense.clear(name, mask)
            return
        for values in (table.weights, *table.state, table.average):
            if values is not None:
                torch.from_numpy(values).masked_fill_(mask, 0)

    def score(self, rows: EncodedRows) -> Floats:
        load_batch(self._batch, rows, None, self.settings.threads)
        self.model.eval()
        with torch.no_grad(), self._dense.using_averages():
            return self._forward_backward.score(self._batch, self._averaged_tables())

    def _averaged_tables(self) -> dict[str, EmbeddingTable]:
        """Return the averaged tables, which are computed at most once per step."""
        if self._averages is None or self._averages[0] != self.steps:
            averaged = {name: table.averaged(self.steps, self.settings.threads) for name, table in self._tables.items()}
            for name, unknown in self._unknown.items():
                if averaged[name] is not self._tables[name]:
                    unknown.shrink(averaged[name].weights)
            self._averages = (self.steps, averaged)
        return self._averages[1]

    def weights(self) -> Arrays:
        dense = {name: to_numpy(value) for name, value in self._dense.averages().items()}
        return dense | {f"{name}.weight": table.weights for name, table in self._averaged_tables().items()}

    def state(self) -> Arrays:
        arrays = self._dense.state()
        for name, table in self._tables.items():
            arrays |= {f"table.{name}.{key}": values for key, values in table_state(table).items()}
        return arrays

    def load(self, state: Stored, steps: int) -> None:
        self.steps = steps
        self._dense.load(state, steps)
        for name, table in self._tables.items():
            for key, values in table_state(table).items():
                values[:] = state[f"table.{name}.{key}"]
