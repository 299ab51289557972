"""What pairs of fields tell of the label: the paper's figure 7, exactly, and what of it chance alone would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2 import _native
from fm2.cpu import check_threads
from fm2.errors import Fm2Error

Matrix = NDArray[np.float64]


def mutual_information(
    ids: ArrayLike, labels: ArrayLike, field_sizes: Sequence[int], threads: int = 0, corrected: bool = False
) -> Matrix:
    """Give I((X_i, X_j); Y) of all pairs of fields with the label, in nats, and of each field on the diagonal.

    It is the plain estimate, of the distribution that the rows have, and as log loss is in nats too, what knowing both
    values could save of the click rate's log loss on these very rows. Values that occur seldom seem to tell much; if
    it is ``corrected``, what the same labels in any other order would tell on average is taken off.

    >>> ids = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> mutual_information(ids, [0, 1, 1, 0], field_sizes=[2, 2]).round(4)  # either or: the pair tells all
    array([[0.    , 0.6931],
           [0.6931, 0.    ]])
    """
    found, chance = information_and_chance(ids, labels, field_sizes, threads)
    return found - chance if corrected else found


def information_and_chance(
    ids: ArrayLike, labels: ArrayLike, field_sizes: Sequence[int], threads: int = 0
) -> tuple[Matrix, Matrix]:
    """Give the mutual information of all pairs, and what it would be on average with the labels in any other order."""
    check_threads("mutual information", threads)
    sizes = np.asarray(field_sizes, dtype=np.int32)
    found, chance = np.zeros((2, len(sizes), len(sizes)))
    try:
        _native.mutual_information(_array(ids, np.int32), _array(labels, np.uint8), sizes, found, chance, threads)
    except (ValueError, IndexError) as wrong:
        raise Fm2Error(str(wrong)) from wrong
    except TypeError as wrong:
        shapes = f"{list(np.shape(ids))} and {list(np.shape(labels))}"
        raise Fm2Error(
            f"mutual information: ids and labels have the shapes {shapes}, not rows × fields and rows"
        ) from wrong
    return found, chance


def _array(values: ArrayLike, kind: type[np.integer[Any]]) -> NDArray[Any]:
    """Give whole numbers as this type, refusing what would not fit into it."""
    given = np.asarray(values)
    fits = given.dtype == kind or np.can_cast(given.dtype, kind)
    if not fits and given.size:
        limits = np.iinfo(kind)
        whole = given.dtype.kind in "iub"
        if not whole or given.min() < limits.min or given.max() > limits.max:
            raise Fm2Error(f"mutual information: there are {given.dtype} numbers that are no {limits.dtype}")
    return np.ascontiguousarray(given, dtype=kind)


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float | None:
    """Give Spearman's rank correlation, ties having the mean of their ranks; None where all of one are alike.

    >>> rank_correlation([1, 2, 3], [10, 20, 20])
    0.8660254037844387
    """
    a, b = (_ranks(np.asarray(values, dtype=np.float64)) for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else None


def _ranks(values: Matrix) -> Matrix:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[which], dtype=np.float64)
