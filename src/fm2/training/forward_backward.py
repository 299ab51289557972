"""From tables to logits and back to gradients, in three ways; each suits some models."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from fm2 import _native
from fm2.models import FactorizationMachine, GatheredModel
from fm2.training import tables
from fm2.training.backend import Floats, to_numpy
from fm2.training.tables import Dropout, Minibatch, Table, Update

Tables = dict[str, Table]


class ForwardBackward(ABC):
    """What a batch asks of the model's tables; the gradients of dense parameters go where autograd puts them."""

    def __init__(self, model: GatheredModel, threads: int, dropout: Dropout | None = None) -> None:
        self._model, self._threads, self._dropout = model, threads, dropout
        self._rooms: dict[str, Floats] = {}

    def _room(self, name: str, rows: int, width: int) -> Floats:
        """Give a matrix in memory that is kept: new memory would have to be cleared every time.

        It begins a cache line, for where a matrix begins can change the last bits of its products.
        """
        if name not in self._rooms or len(self._rooms[name]) < rows * width:
            self._rooms[name] = tables.aligned_zeros(rows * width)
        return self._rooms[name][: rows * width].reshape(rows, width)

    @abstractmethod
    def learn(
        self, batch: Minibatch, found: Tables, step: int, labels: Floats, weights: Floats | None
    ) -> tuple[float, list[Update]]:
        """Give the mean loss, and how the tables are to move."""

    @abstractmethod
    def logits(self, batch: Minibatch, found: Tables) -> Floats:
        """Score the batch, without dropout."""


class FusedForwardBackward(ForwardBackward):
    """LR and FM: logits come straight from the tables, and gradients go straight back."""

    def __init__(self, model: GatheredModel, threads: int) -> None:
        super().__init__(model, threads)
        signs = model.signs if isinstance(model, FactorizationMachine) else []
        self._signs = np.array(signs, np.float32) if signs else None

    def learn(
        self, batch: Minibatch, found: Tables, step: int, labels: Floats, weights: Floats | None
    ) -> tuple[float, list[Update]]:
        logits, sums = self._score(batch, found)
        loss, slope = tables.log_loss(logits, labels, weights)
        self._model.bias.grad = torch.tensor(slope.sum())
        updates = [found["linear"].by_logits(slope)]
        if sums is not None:
            updates.append(found["embedding"].by_sums(slope, sums, self._signs))
        return loss, updates

    def logits(self, batch: Minibatch, found: Tables) -> Floats:
        return self._score(batch, found)[0]

    def _score(self, batch: Minibatch, found: Tables) -> tuple[Floats, Floats | None]:
        sums = None
        if "embedding" in found:
            logits, sums = tables.fm_logits(found["linear"], found["embedding"], batch, self._threads, self._signs)
        else:
            logits = tables.linear_logits(found["linear"], batch, threads=self._threads)
        logits += np.float32(self._model.bias.item())
        return logits, sums


class MatrixForwardBackward(ForwardBackward):
    """FmFM: rows are gathered, and a native kernel makes the two products of matrices."""

    _model: FactorizationMachine

    def __init__(self, model: FactorizationMachine, threads: int, dropout: Dropout | None) -> None:
        super().__init__(model, threads, dropout)
        self._form = _native.QuadraticForm(np.array(model.embedding.dims, np.int32))

    def learn(
        self, batch: Minibatch, found: Tables, step: int, labels: Floats, weights: Floats | None
    ) -> tuple[float, list[Update]]:
        rows, products = (self._room(name, len(batch), found["embedding"].width) for name in ("rows", "products"))
        found["embedding"].gather(batch, rows, self._dropout, step, self._threads)
        logits = self._score(batch, found, rows, products)
        loss, slope = tables.log_loss(logits, labels, weights)
        weight, linear = self._model.interaction.weight, self._model.field_linear
        assert weight is not None
        weight.grad = torch.empty_like(weight)
        linear_slope = None
        if linear is not None:
            linear.grad = torch.empty_like(linear)
            linear_slope = to_numpy(linear.grad)
        self._form.follow(rows, slope, to_numpy(weight.grad), linear_slope, self._threads)
        self._model.interaction.mask_gradient(weight.grad)
        self._model.bias.grad = torch.tensor(slope.sum())
        updates = [found["embedding"].by_rows(products, self._dropout, slope)]
        if "linear" in found:
            updates.append(found["linear"].by_logits(slope))
        return loss, updates

    def logits(self, batch: Minibatch, found: Tables) -> Floats:
        rows, products = (self._room(name, len(batch), found["embedding"].width) for name in ("rows", "products"))
        found["embedding"].gather(batch, rows, threads=self._threads)
        return self._score(batch, found, rows, products)

    def _score(self, batch: Minibatch, found: Tables, rows: Floats, products: Floats) -> Floats:
        logits = np.zeros(len(batch), np.float32)
        if "linear" in found:
            tables.linear_logits(found["linear"], batch, logits, self._threads)
        logits += np.float32(self._model.bias.item())
        weight, linear = self._model.interaction.weight, self._model.field_linear
        assert weight is not None
        w = None if linear is None else to_numpy(linear)
        self._form.score(to_numpy(weight), w, rows, logits, products, self._threads)
        return logits


class AutogradForwardBackward(ForwardBackward):
    """All others: rows are gathered, the rest is the module's."""

    def learn(
        self, batch: Minibatch, found: Tables, step: int, labels: Floats, weights: Floats | None
    ) -> tuple[float, list[Update]]:
        rows = self._gathered(batch, found, step)
        for values in rows.values():
            values.requires_grad_()
        logits = self._model.score(**rows)
        loss, slope = tables.log_loss(to_numpy(logits), labels, weights)
        logits.backward(torch.from_numpy(slope))  # type: ignore[no-untyped-call]
        updates = []
        for name, table in found.items():
            gradient = rows[name].grad
            assert gradient is not None
            updates.append(table.by_rows(to_numpy(gradient.contiguous()), self._drops(name)))
        return loss, updates

    def _drops(self, name: str) -> Dropout | None:
        return self._dropout if name == "embedding" else None

    def logits(self, batch: Minibatch, found: Tables) -> Floats:
        return to_numpy(self._model.score(**self._gathered(batch, found)))

    def _gathered(self, batch: Minibatch, found: Tables, step: int | None = None) -> dict[str, torch.Tensor]:
        """Look a batch up, with what is dropped in a step."""
        rooms = {name: self._room(name, len(batch), table.width) for name, table in found.items()}
        for name, table in found.items():
            table.gather(batch, rooms[name], None if step is None else self._drops(name), step or 0, self._threads)
        return {name: torch.from_numpy(room) for name, room in rooms.items()}
