"""The order in which an epoch sees the rows: random, the same for the same seed, in little memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK, GROUP = 1 << 10, 1 << 21


def shuffled(
    rows: int, seed: list[int], batch: int, skip: int = 0, block: int = BLOCK, group: int = GROUP
) -> Iterator[NDArray[np.int64]]:
    """Give the numbers of all rows, each once, a batch at a time; the first ``skip`` of them are left out.

    Blocks of neighboring rows are drawn at random until they make up a group, and the group's rows are shuffled. So
    data that is larger than memory is read in long stretches, and one group, which is all the rows if they are not
    millions, is all that is remembered.

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
        gone = min(skip, len(left))
        skip, left = skip - gone, left[gone:]
        whole = len(left) // batch * batch
        yield from (left[start : start + batch] for start in range(0, whole, batch))
        left = left[whole:]
    if len(left):
        yield left
