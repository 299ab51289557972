"""Embedding tables that native kernels look up and move, a batch at a time.

A table holds a row of weights for every feature of every field, in one flat buffer. A step is: load a batch of rows,
look them up, and hand the gradient back. Every feature of the batch then moves once, by the sum of its gradients.

>>> import numpy as np
>>> ids = np.array([[0, 2], [1, 2]], dtype=np.int32)  # two rows, two fields
>>> batch = minibatch([2, 3])
>>> batch.load(ids)
>>> table = Table([2, 3], [2, 1], adagrad(learning_rate=1.0), weights=np.arange(7))
>>> table.gather(batch)
array([[0., 1., 6.],
       [2., 3., 6.]], dtype=float32)
>>> update(batch, [table.by_rows(np.ones((2, 3), dtype=np.float32))], step=1)
>>> table.gather(batch)
array([[-1.,  0.,  5.],
       [ 1.,  2.,  5.]], dtype=float32)

Dropout belongs to the gather: what is gathered is multiplied with a mask m, whose elements are zero or one over the
probability of staying, and which a hash of seed, step, row and column tells anew wherever it is needed. So the gradient
of the weights is m times the gradient of what was gathered, and `by_rows` takes the same dropout to put m there. The
fused paths, `by_logits` and `by_sums`, have none.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2 import _native
from fm2._native import Dropout, Minibatch, Optimizer, Update

Floats = NDArray[np.float32]

__all__ = [
    "Dropout",
    "Minibatch",
    "Optimizer",
    "Table",
    "Update",
    "adagrad",
    "adam",
    "fm_logits",
    "ftrl",
    "linear_logits",
    "log_loss",
    "minibatch",
    "update",
]


def adagrad(learning_rate: float = 0.05, epsilon: float = 1e-10, l2: float = 0.0) -> Optimizer:
    """Adagrad, as torch.optim.Adagrad; `l2` times the weights joins the gradient of touched rows."""
    return Optimizer("adagrad", learning_rate, epsilon=epsilon, l2=l2)


def adam(
    learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, l2: float = 0.0
) -> Optimizer:
    """Adam on touched rows alone, as torch.optim.SparseAdam."""
    return Optimizer("adam", learning_rate, epsilon=epsilon, beta1=beta1, beta2=beta2, l2=l2)


def ftrl(learning_rate: float = 0.1, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0) -> Optimizer:
    """FTRL-proximal, which makes weights exactly zero where `l1` outweighs their evidence."""
    return Optimizer("ftrl", learning_rate, beta=beta, l1=l1, l2=l2)


def minibatch(sizes: Sequence[int]) -> Minibatch:
    """Make an empty batch for fields of these sizes; it keeps its room from one `load(ids, order)` to the next."""
    return Minibatch(np.asarray(sizes, dtype=np.int32))


def aligned_zeros(count: int) -> Floats:
    """Make zeros that begin a cache line; numpy asks for huge pages where there are many."""
    room = np.zeros(count + 15, dtype=np.float32)
    skip = -room.ctypes.data // room.itemsize % 16
    return room[skip : skip + count]


class Table:
    """The weights of all features, what an optimizer remembers of them, and their moving average if `decay` is given.

    Field f has sizes[f] rows of dims[f] weights, which begin at offsets[f] of the buffers and stand in the columns from
    starts[f] of a gathered row. `l2_scale` multiplies the optimizer's l2: an entry for every feature, field after
    field. A checkpoint has to keep `weights`, `state`, `average` and `touched`; a torch parameter shares `weights`,
    which begin a cache line, and lie in huge pages where the system has them.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        dims: Sequence[int] | int,
        optimizer: Optimizer,
        *,
        weights: ArrayLike | None = None,
        decay: float = 0.0,
        l2_scale: ArrayLike | None = None,
    ) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int32)
        self.dims = np.broadcast_to(np.asarray(dims, dtype=np.int32), self.sizes.shape).copy()
        self.starts = np.cumsum(self.dims) - self.dims
        floats = self.sizes.astype(np.int64) * self.dims
        self.offsets = np.cumsum(floats) - floats
        self.optimizer, self.decay = optimizer, float(np.float32(decay))  # as native code has it
        self._layout = layout = _native.Layout(self.offsets, self.dims, self.sizes)
        self.weights = aligned_zeros(layout.floats)
        self.state = tuple(aligned_zeros(layout.floats) for _ in range(optimizer.states))
        self.average = aligned_zeros(layout.floats) if decay else None
        self.touched = np.zeros(layout.features, dtype=np.int32) if decay else None
        scale = None if l2_scale is None else np.ascontiguousarray(l2_scale, dtype=np.float32)
        self.width = layout.width
        self.native = _native.Table(layout, self.weights, self.state, scale, self.average, self.touched, decay)
        if weights is not None:
            self.fill(weights)

    def fill(self, weights: ArrayLike) -> None:
        """Set the weights as they are before the first step."""
        self.weights[:] = weights

    def averaged(self, step: int, threads: int = 0) -> Table:
        """Give a table whose weights are the mean of those after each step so far, later ones counting more.

        It is there to be looked up, not to be moved. Without a decay, or before any step, it is this table itself.
        """
        if self.average is None or not step:
            return self
        total = 1 - self.decay**step  # of the weights that the average gives to the steps; what it began with is zero
        twin = copy.copy(self)
        twin.weights, twin.state, twin.average, twin.touched = aligned_zeros(len(self.average)), (), None, None
        np.divide(self.finish_average(step, threads), np.float32(total), out=twin.weights)
        twin.native = _native.Table(self._layout, twin.weights, ())
        return twin

    def field(self, field: int, array: Floats | None = None) -> Floats:
        """Show one field's rows of the weights (or of another of the table's arrays): [size, dim], without a copy.

        >>> Table([2, 3], [2, 1], adagrad(), weights=range(7)).field(1).tolist()
        [[4.0], [5.0], [6.0]]
        """
        size, dim, offset = int(self.sizes[field]), int(self.dims[field]), int(self.offsets[field])
        return (self.weights if array is None else array)[offset : offset + size * dim].reshape(size, dim)

    def gather(
        self,
        batch: Minibatch,
        out: Floats | None = None,
        dropout: Dropout | None = None,
        step: int = 0,
        threads: int = 0,
    ) -> Floats:
        """Look the batch up: every row's embeddings side by side, [rows, width], thinned out by dropout."""
        out = np.empty((len(batch), self.width), dtype=np.float32) if out is None else out
        _native.gather(self.native, batch, out, dropout, step, threads)
        return out

    def by_rows(self, gradient: Floats, dropout: Dropout | None = None, slopes: Floats | None = None) -> Update:
        """Follow the gradient of what `gather` returned, with the same dropout; a row's is multiplied by its slope."""
        return Update(self.native, self.optimizer, rows=gradient, logits=slopes, dropout=dropout)

    def by_logits(self, gradient: Floats) -> Update:
        """Follow the gradient of the logits, in a table of dimension 1 whose weights were summed to them."""
        return Update(self.native, self.optimizer, logits=gradient)

    def by_sums(self, gradient: Floats, sums: Floats, signs: Floats | None = None) -> Update:
        """Follow the gradient of the logits, in a table whose pair terms and sums `fm_logits` returned."""
        return Update(self.native, self.optimizer, logits=gradient, sums=sums, signs=signs)

    def finish_average(self, step: int, threads: int = 0) -> Floats:
        """Bring the average of every row up to the given step, and return it.

        >>> table = Table([1], 1, adagrad(), decay=0.5)
        >>> table.fill([8])
        >>> table.finish_average(step=2)  # it begins at 0, then goes twice half the way to 8
        array([6.], dtype=float32)
        """
        _native.finish_average(self.native, step, threads)
        assert self.average is not None
        return self.average


def linear_logits(linear: Table, batch: Minibatch, out: Floats | None = None, threads: int = 0) -> Floats:
    """Sum every row's weights in a table of dimension 1."""
    out = np.empty(len(batch), dtype=np.float32) if out is None else out
    _native.linear_logits(linear.native, batch, out, threads)
    return out


def fm_logits(
    linear: Table | None, factors: Table, batch: Minibatch, threads: int = 0, signs: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return a factorization machine's logits, and the sums of the rows' embeddings, which its update needs.

    Where there are `signs`, 1 or -1 for every coordinate, both have them.
    """
    logits = np.empty(len(batch), dtype=np.float32)
    sums = np.empty((len(batch), int(factors.dims[0])), dtype=np.float32)
    _native.fm_logits(None if linear is None else linear.native, factors.native, batch, sums, logits, signs, threads)
    return logits, sums


def log_loss(logits: Floats, labels: Floats, weights: Floats | None = None) -> tuple[float, Floats]:
    """Return the rows' mean logistic loss, weighted if weights are given, and its gradient in the logits.

    >>> loss, slopes = log_loss(np.zeros(2, dtype=np.float32), np.array([0, 1], dtype=np.float32))
    >>> round(loss, 4), slopes.tolist()
    (0.6931, [0.25, -0.25])
    """
    slopes = np.empty_like(logits)
    return _native.log_loss(logits, labels, weights, slopes), slopes


def update(batch: Minibatch, updates: Sequence[Update], step: int, threads: int = 0) -> None:
    """Move every distinct feature of the batch once in each table; step counts from 1.

    The result is the same, bit for bit, for any number of threads.
    """
    _native.update(batch, updates, step, threads)
