"""From embedding tables to logits and back to gradients: three implementations, each for some models."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from fm2 import _native
from fm2._native import Dropout, Minibatch, Update
from fm2.models import FactorizationMachine, GatheredModel
from fm2.training import tables
from fm2.training.backend import Floats, to_numpy
from fm2.training.tables import EmbeddingTable

Tables = dict[str, EmbeddingTable]
Learned = tuple[float, list[Update]]  # the mean loss and the updates of the tables


class ForwardBackward(ABC):
    """Computes a batch's logits and the updates of the tables. Dense gradients are left in the parameters' ``grad``.

    ``total`` is the sum of the rows' weights if the batch is a part of a larger one, otherwise 0.
    """

    total = 0.0

    def __init__(self, model: GatheredModel, threads: int, dropout: Dropout | None = None) -> None:
        self._model, self._threads, self.dropout = model, threads, dropout
        self._buffers: dict[str, Floats] = {}

    def _buffer(self, name: str, rows: int, width: int) -> Floats:
        """Return a matrix in memory that is kept between steps: new memory would have to be cleared every time.

        It starts at a cache line, because the alignment of a matrix can change the last bits of its products.
        """
        if name not in self._buffers or len(self._buffers[name]) < rows * width:
            self._buffers[name] = tables.aligned_zeros(rows * width)
        return self._buffers[name][: rows * width].reshape(rows, width)

    @abstractmethod
    def learn(self, batch: Minibatch, by_name: Tables, step: int, labels: Floats, weights: Floats | None) -> Learned:
        """Return the mean loss and the updates of the tables."""

    @abstractmethod
    def score(self, batch: Minibatch, by_name: Tables) -> Floats:
        """Return the batch's logits, without dropout."""


def make_forward_backward(model: GatheredModel, threads: int, dropout: Dropout | None = None) -> ForwardBackward:
    """Create the implementation that the model declares, as far as its parameters and dropout allow."""
    declared = model.spec.forward_backward
    if declared == "matrix" and isinstance(model, FactorizationMachine):
        return MatrixForwardBackward(model, threads, dropout)
    only_bias = len(model.dense_parameters()) == 1
    if declared == "fused" and only_bias and dropout is None:
        return FusedForwardBackward(model, threads)
    return AutogradForwardBackward(model, threads, dropout)


class FusedForwardBackward(ForwardBackward):
    """LR and FM: logits are computed directly from the tables, and gradients go directly back."""

    def __init__(self, model: GatheredModel, threads: int) -> None:
        super().__init__(model, threads)
        signs = model.signs if isinstance(model, FactorizationMachine) else []
        self._signs = np.array(signs, np.float32) if signs else None

    def learn(self, batch: Minibatch, by_name: Tables, step: int, labels: Floats, weights: Floats | None) -> Learned:
        logits, sums = self._logits_and_sums(batch, by_name)
        loss, slopes = tables.log_loss(logits, labels, weights, self.total)
        self._model.bias.grad = torch.tensor(slopes.sum())
        updates = [by_name["linear"].update_by_logits(slopes)]
        if sums is not None:
            updates.append(by_name["embedding"].update_by_sums(slopes, sums, self._signs))
        return loss, updates

    def score(self, batch: Minibatch, by_name: Tables) -> Floats:
        return self._logits_and_sums(batch, by_name)[0]

    def _logits_and_sums(self, batch: Minibatch, by_name: Tables) -> tuple[Floats, Floats | None]:
        sums = None
        if "embedding" in by_name:
            logits, sums = tables.fm_logits(by_name["linear"], by_name["embedding"], batch, self._threads, self._signs)
        else:
            logits = tables.linear_logits(by_name["linear"], batch, threads=self._threads)
        logits += np.float32(self._model.bias.item())
        return logits, sums


class MatrixForwardBackward(ForwardBackward):
    """FmFM: rows are gathered, and a native kernel computes the two matrix products."""

    _model: FactorizationMachine

    def __init__(self, model: FactorizationMachine, threads: int, dropout: Dropout | None) -> None:
        super().__init__(model, threads, dropout)
        self._form = _native.QuadraticForm(np.array(model.embedding.dims, np.int32))

    def learn(self, batch: Minibatch, by_name: Tables, step: int, labels: Floats, weights: Floats | None) -> Learned:
        rows, products = (self._buffer(name, len(batch), by_name["embedding"].width) for name in ("rows", "products"))
        by_name["embedding"].gather(batch, rows, self.dropout, step, self._threads)
        logits = self._logits(batch, by_name, rows, products)
        loss, slopes = tables.log_loss(logits, labels, weights, self.total)
        self._set_dense_gradients(rows, slopes)
        updates = [by_name["embedding"].update_by_rows(products, self.dropout, slopes)]
        if "linear" in by_name:
            updates.append(by_name["linear"].update_by_logits(slopes))
        return loss, updates

    def _set_dense_gradients(self, rows: Floats, slopes: Floats) -> None:
        weight, linear = self._model.interaction.weight, self._model.field_linear
        assert weight is not None
        weight.grad = torch.empty_like(weight)
        linear_gradient = None
        if linear is not None:
            linear.grad = torch.empty_like(linear)
            linear_gradient = to_numpy(linear.grad)
        self._form.follow(rows, slopes, to_numpy(weight.grad), linear_gradient, self._threads)
        self._model.interaction.mask_gradient(weight.grad)
        self._model.bias.grad = torch.tensor(slopes.sum())

    def score(self, batch: Minibatch, by_name: Tables) -> Floats:
        rows, products = (self._buffer(name, len(batch), by_name["embedding"].width) for name in ("rows", "products"))
        by_name["embedding"].gather(batch, rows, threads=self._threads)
        return self._logits(batch, by_name, rows, products)

    def _logits(self, batch: Minibatch, by_name: Tables, rows: Floats, products: Floats) -> Floats:
        logits = np.zeros(len(batch), np.float32)
        if "linear" in by_name:
            tables.linear_logits(by_name["linear"], batch, logits, self._threads)
        logits += np.float32(self._model.bias.item())
        weight, linear = self._model.interaction.weight, self._model.field_linear
        assert weight is not None
        w = None if linear is None else to_numpy(linear)
        self._form.score(to_numpy(weight), w, rows, logits, products, self._threads)
        return logits


class AutogradForwardBackward(ForwardBackward):
    """All other models: rows are gathered natively, and autograd does the rest."""

    def learn(self, batch: Minibatch, by_name: Tables, step: int, labels: Floats, weights: Floats | None) -> Learned:
        rows = self._gather(batch, by_name, step)
        for values in rows.values():
            values.requires_grad_()
        logits = self._model.score(**rows)
        loss, slopes = tables.log_loss(to_numpy(logits), labels, weights, self.total)
        logits.backward(torch.from_numpy(slopes))  # type: ignore[no-untyped-call]
        updates = []
        for name, table in by_name.items():
            gradient = rows[name].grad
            assert gradient is not None
            updates.append(table.update_by_rows(to_numpy(gradient.contiguous()), self._dropout_of(name)))
        return loss, updates

    def _dropout_of(self, name: str) -> Dropout | None:
        return self.dropout if name == "embedding" else None

    def score(self, batch: Minibatch, by_name: Tables) -> Floats:
        return to_numpy(self._model.score(**self._gather(batch, by_name)))

    def _gather(self, batch: Minibatch, by_name: Tables, step: int | None = None) -> dict[str, torch.Tensor]:
        """Gather a batch's rows from all tables; training steps apply dropout."""
        buffers = {name: self._buffer(name, len(batch), table.width) for name, table in by_name.items()}
        for name, table in by_name.items():
            dropout = None if step is None else self._dropout_of(name)
            table.gather(batch, buffers[name], dropout, step or 0, self._threads)
        return {name: torch.from_numpy(buffer) for name, buffer in buffers.items()}
