"""Training on several workers: each computes a part of every batch, and stores a shard of every table."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from fm2 import _native
from fm2._native import Dropout
from fm2.artifacts.arrays import Arrays, Saved, Stored, map_array
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.distributed.batch_tables import BatchSlot
from fm2.distributed.exchange import Exchange, Transfer
from fm2.distributed.rows import Buffers, Lookup
from fm2.distributed.shards import TableShard
from fm2.distributed.workers import Workers
from fm2.models import GatheredModel
from fm2.training.backend import Backend, Floats, to_numpy
from fm2.training.forward_backward import make_forward_backward
from fm2.training.hidden import Hidden
from fm2.training.optimizers import DenseOptimizer
from fm2.training.tables import load_batch

Order = NDArray[np.int64]
FEW_SUMS = 4096


class DistributedBackend(Backend):
    """Takes the same steps as :class:`fm2.training.native_backend.NativeBackend`, apart from the order of sums.

    Each worker computes the logits and gradients of the rows of the batch that are in its share of the dataset, from
    copies of the table rows that it needs. The worker that stores a table row updates it by the sum of all workers'
    gradients. While a batch is computed, a thread fetches the table rows of the next one that the current step does not
    update.
    """

    model: GatheredModel

    def __init__(
        self,
        model: GatheredModel,
        settings: Settings,
        shards: dict[str, TableShard],
        workers: Workers,
        numbers: Sequence[int] = (),
        hidden: Hidden | None = None,
    ) -> None:
        super().__init__(model, settings, numbers, hidden)
        self.workers, self.shards = workers, shards
        self._dense = DenseOptimizer(model, settings)
        self._exchange = Exchange(workers, shards, settings.threads)
        self._forward_backward = make_forward_backward(model, settings.threads, self._drops(True))
        self._slots = [BatchSlot(model.field_sizes, shards, self._drops()) for _ in range(3)]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fm2-rows")
        self._announced: tuple[EncodedRows, Order] | None = None
        self._coming: tuple[Order, Future[Lookup]] | None = None
        self._averages: tuple[int, Buffers] | None = None
        self._work: Any = None  # the addition of many numbers
        self.votes: list[float] = []

    def _drops(self, computing: bool = False) -> Dropout | None:
        """Return the dropout of a batch, with a first row of its own; None if the computation has none."""
        rates = self.settings.dropout, self.settings.field_dropout
        if computing and not any(rates):
            return None
        return self.make_dropout(*rates)

    def _share(self, rows: int) -> slice:
        """Return this worker's share of so many rows."""
        index, count = self.workers.index, self.workers.count
        return slice(rows * index // count, rows * (index + 1) // count)

    def _positions(self, rows: EncodedRows, order: Order) -> NDArray[np.uint32]:
        """Return which rows of a batch belong to this worker: those of its share of all rows, so it reads no others."""
        share = self._share(len(rows))
        return np.flatnonzero((order >= share.start) & (order < share.stop)).astype(np.uint32)

    def announce(self, rows: EncodedRows, order: Order | None) -> None:
        self._announced = None if order is None else (rows, order)

    def step(self, rows: EncodedRows, order: Order, labels: Floats, weights: Floats | None, rate: float) -> float:
        self._averages = None
        lookup = self._take(rows, order)
        self.steps += 1
        self._exchange.mark(lookup, self.steps)
        self._fetch_ahead(lookup.slot)
        self._exchange.fetch(self._weights(), lookup)
        part = lookup.slot.part
        self.model.begin_step(self.settings.seed, self.steps)
        self.model.take_part(part, len(order))
        for shard in self.shards.values():
            shard.optimizer.learning_rate = self.settings.learning_rate * rate
        total = float(len(order) if weights is None else weights.sum(dtype=np.float64))
        own_weights = None if weights is None else weights[part]
        loss = self._learn(lookup.slot, part, labels[part], own_weights, total)
        gradients = self._send_gradients(lookup)
        loss = self._use_sums()
        self._dense.step(rate)
        self._exchange.update(lookup, gradients, self.steps)
        return loss

    def _learn(
        self, slot: BatchSlot, part: NDArray[np.uint32], labels: Floats, weights: Floats | None, total: float
    ) -> float:
        """Compute the gradients of this worker's rows and start to add those of the dense parameters."""
        loss = 0.0
        if len(labels):
            self._forward_backward.total = total
            dropout = self._forward_backward.dropout
            if dropout is not None:
                dropout.set_rows(part)
            loss, updates = self._forward_backward.learn(slot.batch, slot.tables, self.steps, labels, weights)
        else:
            for parameter in self._dense.parameters():
                parameter.grad = torch.zeros_like(parameter)
        self._start_sums(loss)
        if len(labels):
            _native.update(slot.batch, updates, self.steps, self.settings.threads)
        return loss

    def _start_sums(self, loss: float) -> None:
        """Start to add the gradients of the dense parameters, the losses and the votes of all workers.

        Few numbers are sent together with the gradients of the tables, and added by every worker.
        """
        gradients = [_gradient(parameter).reshape(-1) for parameter in self._dense.parameters()]
        self._sums = torch.cat([*gradients, torch.tensor([loss, *self.votes])])
        if len(self._sums) > FEW_SUMS:
            self._work = self.workers.start_sum(self._sums)

    def _send_gradients(self, lookup: Lookup) -> Transfer:
        """Start to send the gradients of the tables; finish the sums."""
        if self._work is not None:
            gradients = self._exchange.send_gradients(lookup)
            self.workers.wait(self._work)
            self._work = None
            return gradients
        gradients = self._exchange.wait(self._exchange.send_gradients(lookup, to_numpy(self._sums)))
        self._sums = torch.from_numpy(np.sum(gradients.extras, axis=0, dtype=np.float32))
        return gradients

    def _use_sums(self) -> float:
        """Replace the gradients of the dense parameters by their sums, and return the sum of the losses."""
        begin = 0
        for parameter in self._dense.parameters():
            end = begin + parameter.numel()
            parameter.grad = self._sums[begin:end].view_as(parameter)
            begin = end
        loss: float
        loss, *self.votes = self._sums[begin:].tolist()
        return loss

    def _take(self, rows: EncodedRows, order: Order) -> Lookup:
        """Return the batch, some of whose rows may have been fetched during the last step."""
        coming, self._coming = self._coming, None
        if coming is not None:
            lookup = coming[1].result()
            if coming[0] is order:
                return lookup
        self._load(self._slots[0], rows, order, self.steps + 1)
        return self._exchange.request(self._slots[0])

    def _fetch_ahead(self, used: BatchSlot) -> None:
        """Start to fetch the rows of the next batch that this step does not update."""
        if self._announced is None:
            return
        rows, order = self._announced
        step = self.steps
        slot = self._slots[1] if used is self._slots[0] else self._slots[0]

        def fetch() -> Lookup:
            self._load(slot, rows, order, step + 1)
            lookup = self._exchange.request(slot, ahead=True)
            self._exchange.fetch_early(self._weights(), lookup, step)
            return lookup

        self._coming = order, self._thread.submit(fetch)

    def _load(self, slot: BatchSlot, rows: EncodedRows, order: Order, step: int) -> None:
        slot.part = part = self._positions(rows, order)
        if slot.dropout is not None:
            slot.dropout.set_rows(part)
        load_batch(slot.batch, rows, order[part], self.settings.threads, slot.dropout, step)

    def _weights(self) -> Buffers:
        return {name: (shard.table.layout, shard.table.weights) for name, shard in self.shards.items()}

    def score(self, rows: EncodedRows) -> Floats:
        part = self._share(len(rows))
        slot = self._slots[2]
        load_batch(slot.batch, rows[part], None, self.settings.threads)
        lookup = self._exchange.request(slot)
        self._exchange.fetch(self.averages(), lookup)
        logits = np.empty(0, np.float32)
        if part.stop > part.start:
            self.model.eval()
            with torch.no_grad(), self._dense.using_averages():
                logits = self._forward_backward.score(slot.batch, slot.tables)
        return np.concatenate(self.workers.collect(logits))

    def averages(self) -> Buffers:
        """Return the averaged weights of this worker's shards, which are computed at most once per step."""
        if self._averages is None or self._averages[0] != self.steps:
            averaged = {
                name: shard.table.averaged(self.steps, self.settings.threads) for name, shard in self.shards.items()
            }
            for name, shard in self.shards.items():
                if averaged[name] is not shard.table:
                    sums = shard.weighted_sums(averaged[name].weights)
                    total = self.workers.sum(np.concatenate(sums))
                    ends = np.cumsum([len(own) for own in sums])[:-1]
                    shard.shrink_unknown(averaged[name].weights, np.split(total, ends))
            self._averages = self.steps, {name: (table.layout, table.weights) for name, table in averaged.items()}
        return self._averages[1]

    def dense_weights(self) -> dict[str, Any]:
        """Return the dense parameters by name, averaged if averaging is on."""
        return {name: to_numpy(value) for name, value in self._dense.averages().items()}

    def weights(self) -> Saved:
        raise NotImplementedError("no worker has all weights; fm2.distributed.streaming writes them in pieces")

    def state(self) -> Arrays:
        """Return this worker's part of the state: the dense parameters and its shards."""
        arrays = self._dense.state()
        for name, shard in self.shards.items():
            arrays |= {f"table.{name}.{key}": values for key, values in shard.state().items()}
        return arrays

    def load_dense(self, state: Stored, steps: int) -> None:
        """Restore everything except the shards."""
        self.drop_ahead()
        self.steps = steps
        self._dense.load(state, steps)

    def load(self, state: Stored, steps: int) -> None:
        self.load_dense(state, steps)
        for name, shard in self.shards.items():
            for key, values in shard.state().items():
                values[:] = map_array(state, f"table.{name}.{key}")

    def drop_ahead(self) -> None:
        """Wait for rows that are being fetched, and forget them."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming[1].result()
        self._announced = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread that fetches rows."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
