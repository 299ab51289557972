"""The order of the training rows: batches of row numbers, shuffled anew in every epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def shuffled(
    rows: int, seed: list[int], batch: int, skip: int = 0, block: int = 1 << 10, group: int = 1 << 21
) -> Iterator[NDArray[np.int64]]:
    """Yield batches of row indices, in which every row occurs once, without the first ``skip`` rows.

    Blocks of adjacent rows are drawn at random until they fill a group, and the rows of the group are shuffled. Data
    that is larger than memory is therefore read in long runs, and only the indices of one group are in memory. Up to
    two million rows form a single group.

    >>> [batch.tolist() for batch in shuffled(5, seed=[0], batch=2)]
    [[2, 4], [3, 0], [1]]
    """
    random = np.random.default_rng(seed)
    blocks = random.permutation(-(-rows // block))
    left = np.empty(0, np.int64)
    for begin in range(0, len(blocks), group // block):
        starts = blocks[begin : begin + group // block, None] * block
        numbers = (starts + np.arange(block)).ravel()
        left = np.concatenate([left, random.permutation(numbers[numbers < rows])])
        skipped = min(skip, len(left))
        skip, left = skip - skipped, left[skipped:]
        full = len(left) // batch * batch
        yield from (left[start : start + batch] for start in range(0, full, batch))
        left = left[full:]
    if len(left):
        yield left


def with_next(batches: Iterator[NDArray[np.int64]]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
    """Yield each batch together with the next one, or None."""
    current = next(batches, None)
    while current is not None:
        following = next(batches, None)
        yield current, following
        current = following
