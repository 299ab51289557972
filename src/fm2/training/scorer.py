"""Scoring rows with a trained model: with native code where available, and without optimizer state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

import torch

from fm2 import _native
from fm2.data.rows import EncodedRows
from fm2.models import GatheredModel, Model
from fm2.models.rows import to_tensors
from fm2.training import tables
from fm2.training.backend import Floats, to_numpy
from fm2.training.forward_backward import make_forward_backward
from fm2.training.rowwise_backend import KERNELS
from fm2.training.tables import EmbeddingTable


class ModelScorer(Protocol):
    """Scores encoded rows with a model's weights."""

    def score(self, rows: EncodedRows) -> Floats:
        """Return the logits of rows."""


class GatheredScorer:
    """Scores a model from gathered rows. The model's tables share their memory with the scorer."""

    def __init__(self, model: GatheredModel, threads: int) -> None:
        self.model, self._threads = model, threads
        self._tables = {
            name: EmbeddingTable(table.field_sizes, table.dims, weights=to_numpy(table.weight), offsets=table.offsets)
            for name, table in model.tables.items()
        }
        for name, table in model.tables.items():
            table.weight.data = torch.from_numpy(self._tables[name].weights)
        self._batch = tables.minibatch(model.field_sizes)
        self._forward_backward = make_forward_backward(model, threads)

    def score(self, rows: EncodedRows) -> Floats:
        tables.load_batch(self._batch, rows, None, self._threads)
        self.model.eval()
        with torch.no_grad():
            return self._forward_backward.score(self._batch, self._tables)


class TorchScorer:
    """Scores a model by its ``forward`` method."""

    def __init__(self, model: Model) -> None:
        self.model = model.eval()

    @torch.no_grad()
    def score(self, rows: EncodedRows) -> Floats:
        return to_numpy(self.model(to_tensors(rows)))


def make_scorer(model: Model, threads: int = 0) -> ModelScorer:
    """Create the fastest scorer for a model and its weights."""
    if model.spec.rowwise is not None:
        kernel: ModelScorer = KERNELS[model.spec.rowwise.kernel](model, threads)
        return kernel
    return GatheredScorer(model.for_scoring(), threads) if isinstance(model, GatheredModel) else TorchScorer(model)


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set the number of torch's threads within a context; 0 means one per processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or _native.default_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)
