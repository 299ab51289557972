"""Embedding tables that native kernels gather from and update, a batch at a time.

A table holds a row of weights for every feature of every field in one flat buffer. A step loads a batch of rows,
gathers their weights, and passes the gradient back. Every feature of the batch is then updated once, by the sum of its
gradients. A multi-valued field contributes the weighted sum of its features' rows.

Dropout is part of the gather: gathered weights are multiplied by a mask m, whose elements are zero or one over the
probability of keeping them. A hash of seed, step, row and column determines m, so it can be computed again wherever it
is needed. The gradient of the weights is m times the gradient of the gathered values, and `update_by_rows` takes the
same dropout to apply m. The fused paths, `update_by_logits` and `update_by_sums`, have no dropout.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2 import _native
from fm2._native import Dropout, Minibatch, Optimizer, Update
from fm2.artifacts.arrays import Arrays
from fm2.data.rows import EncodedRows

Floats = NDArray[np.float32]


def adagrad(learning_rate: float = 0.05, epsilon: float = 1e-10, l2: float = 0.0) -> Optimizer:
    """Create Adagrad, as torch.optim.Adagrad; `l2` times the weights is added to the gradient of touched rows."""
    return Optimizer("adagrad", learning_rate, epsilon=epsilon, l2=l2)


def adam(
    learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, l2: float = 0.0
) -> Optimizer:
    """Create Adam on touched rows only, as torch.optim.SparseAdam."""
    return Optimizer("adam", learning_rate, epsilon=epsilon, beta1=beta1, beta2=beta2, l2=l2)


def ftrl(learning_rate: float = 0.1, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0) -> Optimizer:
    """Create FTRL-proximal, which sets weights to exactly zero where `l1` outweighs their evidence."""
    return Optimizer("ftrl", learning_rate, beta=beta, l1=l1, l2=l2)


def minibatch(sizes: Sequence[int]) -> Minibatch:
    """Create an empty batch for fields of these sizes; it keeps its memory from one `load` to the next."""
    return Minibatch(np.asarray(sizes, dtype=np.int32))


def load_batch(
    batch: Minibatch,
    rows: EncodedRows,
    order: NDArray[np.int64] | None = None,
    threads: int = 0,
    dropout: Dropout | None = None,
    step: int = 0,
) -> None:
    """Load the rows ``rows[order]``, or all of them; ``dropout`` drops values of multi-valued fields."""
    ids = np.ascontiguousarray(rows.ids)
    batch.load(ids, rows.native_lists(), order, threads, dropout, step)


def aligned_zeros(count: int) -> Floats:
    """Return zeros that start at a cache line; numpy requests huge pages for large arrays."""
    buffer = np.zeros(count + 15, dtype=np.float32)
    skip = -buffer.ctypes.data // buffer.itemsize % 16
    return buffer[skip : skip + count]


class EmbeddingTable:
    """The weights of all features, their optimizer state, and their moving average if `decay` is positive.

    Field f has sizes[f] rows of dims[f] weights. They start at offsets[f] of the buffers and occupy the columns from
    starts[f] of a gathered row. Fields with the same offset share their rows. `l2_scale` multiplies the optimizer's l2,
    with one entry per feature, field by field; shared features have one entry, that of their first field. With
    `keep_zeros`, weights that are zero stay zero. A table without an optimizer can only be read.

    A checkpoint has to keep `weights`, `state`, `average` and `touched`. A torch parameter can share `weights`, which
    start at a cache line and lie in huge pages where the system has them.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        dims: Sequence[int] | int,
        optimizer: Optimizer | None = None,
        *,
        weights: ArrayLike | None = None,
        decay: float = 0.0,
        l2_scale: ArrayLike | None = None,
        offsets: Sequence[int] | None = None,
        keep_zeros: bool = False,
    ) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int32)
        self.dims = np.broadcast_to(np.asarray(dims, dtype=np.int32), self.sizes.shape).copy()
        self.starts = np.cumsum(self.dims) - self.dims
        floats = self.sizes.astype(np.int64) * self.dims
        self.offsets = np.cumsum(floats) - floats if offsets is None else np.asarray(offsets, dtype=np.int64)
        self.optimizer, self.decay = optimizer, float(np.float32(decay))  # rounded as in native code
        self.layout = layout = _native.Layout(self.offsets, self.dims, self.sizes)
        self.weights = aligned_zeros(layout.floats)
        states = 0 if optimizer is None else optimizer.states
        self.state = tuple(aligned_zeros(layout.floats) for _ in range(states))
        self.average = aligned_zeros(layout.floats) if decay else None
        self.touched = np.zeros(layout.features, dtype=np.int32) if decay else None
        scale = None if l2_scale is None else np.ascontiguousarray(l2_scale, dtype=np.float32)
        self.width = layout.width
        averaging = self.average, self.touched, decay
        self.native = _native.Table(layout, self.weights, self.state, scale, *averaging, keep_zeros)
        if weights is not None:
            self.weights[:] = weights

    def averaged(self, step: int, threads: int = 0) -> EmbeddingTable:
        """Return a read-only table with the moving average of the weights after all steps so far.

        Without a decay, or before the first step, it is this table itself.
        """
        if self.average is None or not step:
            return self
        total = 1 - self.decay**step  # the sum of the weights of all steps, because the average starts at zero
        twin = copy.copy(self)
        twin.optimizer, twin.state, twin.average, twin.touched = None, (), None, None
        twin.weights = aligned_zeros(len(self.average))
        np.divide(self.finish_average(step, threads), np.float32(total), out=twin.weights)
        twin.native = _native.Table(self.layout, twin.weights, ())
        return twin

    def gather(
        self,
        batch: Minibatch,
        out: Floats | None = None,
        dropout: Dropout | None = None,
        step: int = 0,
        threads: int = 0,
    ) -> Floats:
        """Return the concatenated embeddings of every row of a batch, [rows, width], after dropout."""
        out = np.empty((len(batch), self.width), dtype=np.float32) if out is None else out
        _native.gather(self.native, batch, out, dropout, step, threads)
        return out

    def update_by_rows(self, gradient: Floats, dropout: Dropout | None = None, slopes: Floats | None = None) -> Update:
        """Return the update for the gradient of what `gather` returned, with the same dropout.

        If there are `slopes`, each row's gradient is multiplied by its slope.
        """
        return self._update(rows=gradient, logits=slopes, dropout=dropout)

    def update_by_logits(self, gradient: Floats) -> Update:
        """Return the update for the gradient of logits that are sums of this table's weights, of dimension 1."""
        return self._update(logits=gradient)

    def update_by_sums(self, gradient: Floats, sums: Floats, signs: Floats | None = None) -> Update:
        """Return the update for the gradient of logits that `fm_logits` returned together with these sums."""
        return self._update(logits=gradient, sums=sums, signs=signs)

    def _update(self, **gradient: Any) -> Update:
        assert self.optimizer is not None, "a table without an optimizer can only be read"
        return Update(self.native, self.optimizer, **gradient)

    def finish_average(self, step: int, threads: int = 0) -> Floats:
        """Bring the average of every row up to the given step, and return it."""
        _native.finish_average(self.native, step, threads)
        assert self.average is not None
        return self.average


def table_state(table: EmbeddingTable) -> Arrays:
    """Return the arrays of a table that a checkpoint has to keep."""
    arrays: Arrays = {"weights": table.weights}
    arrays |= {f"state{i}": values for i, values in enumerate(table.state)}
    if table.average is not None and table.touched is not None:
        arrays |= {"average": table.average, "touched": table.touched}
    return arrays


def linear_logits(linear: EmbeddingTable, batch: Minibatch, out: Floats | None = None, threads: int = 0) -> Floats:
    """Sum every row's weights in a table of dimension 1."""
    out = np.empty(len(batch), dtype=np.float32) if out is None else out
    _native.linear_logits(linear.native, batch, out, threads)
    return out


def fm_logits(
    linear: EmbeddingTable | None,
    factors: EmbeddingTable,
    batch: Minibatch,
    threads: int = 0,
    signs: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return a factorization machine's logits and the sums of the rows' embeddings, which its update needs.

    `signs`, 1 or -1 for every coordinate, apply to both.
    """
    logits = np.empty(len(batch), dtype=np.float32)
    sums = np.empty((len(batch), int(factors.dims[0])), dtype=np.float32)
    _native.fm_logits(None if linear is None else linear.native, factors.native, batch, sums, logits, signs, threads)
    return logits, sums


def log_loss(logits: Floats, labels: Floats, weights: Floats | None = None, total: float = 0.0) -> tuple[float, Floats]:
    """Return the rows' mean logistic loss, weighted if there are weights, and its gradient by the logits.

    If the rows are a part of a batch, ``total`` is the sum of the weights of all its rows.
    """
    slopes = np.empty_like(logits)
    return _native.log_loss(logits, labels, weights, slopes, total=total), slopes
