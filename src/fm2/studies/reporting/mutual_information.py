"""Mutual information between field pairs and the label (the paper's figure 6), and its value under chance.

A list field counts with one of its values, drawn at random in every row. Hardly any list occurs twice, so the
information of a whole list cannot be estimated from counts; that of a random value is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2 import _native
from fm2.cpu import check_threads
from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error

Matrix = NDArray[np.float64]


def mutual_information(
    rows: EncodedRows | ArrayLike,
    labels: ArrayLike,
    field_sizes: Sequence[int],
    threads: int = 0,
    corrected: bool = False,
) -> Matrix:
    """Return I((X_i, X_j); Y) in nats for all pairs of fields; the diagonal has I(X_i; Y) for single fields.

    This is the plug-in estimate: the reduction in log loss, on these very rows, of a model that knows both values over
    one that knows only the click rate. It is biased upward for rare values. ``corrected`` subtracts its expectation
    under random permutations of the labels. ``rows`` are ids [rows, fields], or encoded rows; a list field counts with
    one value per row, which is drawn at random.

    >>> ids = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> mutual_information(ids, [0, 1, 1, 0], field_sizes=[2, 2]).round(4)  # XOR: only the pair is informative
    array([[0.    , 0.6931],
           [0.6931, 0.    ]])
    """
    information, chance = information_and_chance(rows, labels, field_sizes, threads)
    return information - chance if corrected else information


def information_and_chance(
    rows: EncodedRows | ArrayLike, labels: ArrayLike, field_sizes: Sequence[int], threads: int = 0
) -> tuple[Matrix, Matrix]:
    """Return the mutual information of all pairs, and its expectation under random permutations of the labels."""
    check_threads("mutual information", threads)
    sizes = np.array(field_sizes, dtype=np.int32)
    if isinstance(rows, EncodedRows):
        ids: ArrayLike = draw_values(rows, sizes)
        sizes[list(rows.lists)] += 1  # the empty list is a value of its own
    else:
        ids = rows
    information, chance = np.zeros((2, len(sizes), len(sizes)))
    try:
        _native.mutual_information(
            _as_integers(ids, np.int32), _as_integers(labels, np.uint8), sizes, information, chance, threads
        )
    except (ValueError, IndexError) as error:
        raise Fm2Error(str(error)) from error
    except TypeError as error:
        shapes = f"{list(np.shape(ids))} and {list(np.shape(labels))}"
        raise Fm2Error(
            f"mutual information: expected ids of shape [rows, fields] and labels of shape [rows], got {shapes}"
        ) from error
    return information, chance


def draw_values(rows: EncodedRows, field_sizes: Sequence[int] | NDArray[np.int32], seed: int = 0) -> NDArray[np.int32]:
    """Return ids [rows, fields] in which each list is replaced by one of its values, drawn by absolute weight.

    A list without values, or without weight, gets the first id beyond the values of its field.

    >>> from fm2.data.rows import Lists
    >>> rows = EncodedRows(np.array([[3, 0], [4, 1]], np.int32), {1: Lists.of([[7, 7, 7], []])})
    >>> draw_values(rows, field_sizes=[5, 9]).tolist()
    [[3, 7], [4, 9]]
    """
    if not rows.lists:
        return np.asarray(rows.ids)
    random = np.random.default_rng(seed)
    ids = np.array(rows.ids)
    for field, table in rows.lists.items():
        lists = table.take(rows.ids[:, field])
        ends = np.cumsum(np.abs(lists.value_weights()), dtype=np.float64)
        sums = np.concatenate([[0.0], ends])[lists.offsets]
        drawn = sums[:-1] + random.random(len(lists)) * np.diff(sums)
        positions = np.minimum(np.searchsorted(ends, drawn, side="right"), lists.offsets[1:] - 1)
        filled = np.diff(sums) > 0
        ids[:, field] = field_sizes[field]
        ids[filled, field] = lists.ids[positions[filled]]
    return ids


def _as_integers(values: ArrayLike, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Convert integers to a dtype. Raise an error if a value does not fit."""
    array = np.asarray(values)
    if array.size and not np.can_cast(array.dtype, dtype):
        limits = np.iinfo(dtype)
        if array.dtype.kind not in "iub":
            raise Fm2Error(f"mutual information: expected integers, got {array.dtype} values")
        if array.min() < limits.min or array.max() > limits.max:
            raise Fm2Error(
                f"mutual information: expected {limits.dtype} values, got values from {array.min()} to {array.max()}"
            )
    return np.ascontiguousarray(array, dtype=dtype)


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float | None:
    """Return Spearman's rank correlation; tied values share their mean rank. None if all values of a side are equal."""
    a, b = (_ranks(np.asarray(values, dtype=np.float64)) for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else None


def _ranks(values: Matrix) -> Matrix:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[group], dtype=np.float64)
