"""Arrays of ids, as callers give them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error

LARGEST_ID = np.iinfo(np.int32).max


def as_ids(given: NDArray[Any], shape: str, operation: str) -> NDArray[np.int32]:
    """Give whole numbers as native code takes them; ``shape`` says what they are, as many words as dimensions.

    >>> as_ids(np.array([3, 1]), "fields", "rank")
    array([3, 1], dtype=int32)
    """
    if given.dtype.kind not in "iu" or given.ndim != len(shape.split(" × ")):
        raise Fm2Error(f"{operation}: ids are whole numbers, {shape}, not {given.dtype} {list(given.shape)}")
    if given.dtype != np.int32 and given.size and not 0 <= given.min() <= given.max() <= LARGEST_ID:
        raise Fm2Error(f"{operation}: the ids go from {given.min()} to {given.max()}, further than those of any field")
    return np.ascontiguousarray(given, np.int32)
