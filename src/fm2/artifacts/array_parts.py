"""Change parts of arrays, which may only exist in chunks while they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import ChunkedArray

Values = NDArray[Any] | ChunkedArray
PIECE = 1 << 20  # values of an array that are copied at once
Parts = Mapping[int, NDArray[np.float32]]  # by the position where they begin


def with_parts(values: Values, factor: float, parts: Parts) -> Values:
    """Return values times a factor, with each of the ``parts`` written at its position.

    >>> with_parts(np.ones(4, np.float32), 0.5, {1: np.array([7, 8], np.float32)}).tolist()
    [0.5, 7.0, 8.0, 0.5]
    """
    if factor == 1 and not parts:
        return values
    if isinstance(values, ChunkedArray) or values.size > PIECE:
        length = values.length if isinstance(values, ChunkedArray) else values.size
        return ChunkedArray(length, lambda: _chunks(values, factor, parts))
    result = np.asarray(values * np.float32(factor))
    _replace(result.reshape(-1), 0, parts)
    return result


def _chunks(values: Values, factor: float, parts: Parts) -> Iterator[NDArray[np.float32]]:
    """Yield the values with their parts in chunks; only these are copied."""
    begin = 0
    for chunk in _pieces(values):
        changed = chunk * np.float32(factor)
        _replace(changed, begin, parts)
        begin += len(changed)
        yield changed


def _pieces(values: Values) -> Iterator[NDArray[np.float32]]:
    if isinstance(values, ChunkedArray):
        yield from (chunk.reshape(-1) for chunk in values.make())
        return
    flat = values.reshape(-1)
    yield from (flat[begin : begin + PIECE] for begin in range(0, len(flat), PIECE))


def _replace(flat: NDArray[Any], begin: int, parts: Parts) -> None:
    """Write the overlap of each part with values that begin at a position."""
    for start, part in parts.items():
        low, high = max(start, begin), min(start + len(part), begin + len(flat))
        if low < high:
            flat[low - begin : high - begin] = part[low - start : high - start]


def read_part(values: Values, begin: int, end: int) -> NDArray[Any]:
    """Return the values from one position to another."""
    if not isinstance(values, ChunkedArray):
        return values.reshape(-1)[begin:end]
    result = np.empty(end - begin, np.float32)
    at = 0
    for flat in _pieces(values):
        low, high = max(begin, at), min(end, at + len(flat))
        if low < high:
            result[low - begin : high - begin] = flat[low - at : high - at]
        at += len(flat)
        if at >= end:  # the other chunks need not be computed
            break
    return result
