"""Floating-point operations per prediction, counted as in the table of the paper's section 4.2.

The paper has orders of growth, and numbers for n = 39 and K = 16; these formulas reproduce the numbers. A
multiplication and an addition count as one operation each, and the linear part as 2n, except in FM, where the paper
omits it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def lr(n: int) -> int:
    """Count LR's operations."""
    return 2 * n


def poly2(n: int) -> int:
    """Count Poly2's operations: two per pair."""
    return 2 * _pairs(n) + 2 * n


def fm(n: int, k: int) -> int:
    """Count FM's operations: the square of the sum minus the sum of squares, without the linear part."""
    return k * (3 * n + 3)


def ffm(n: int, k: int) -> int:
    """Count FFM's operations: a dot product per pair."""
    return _pairs(n) * (2 * k + 1) + 2 * n


def fwfm(n: int, k: int, pruned: int = 0) -> int:
    """Count FwFM's operations: a dot product per pair, and its weight."""
    return (_pairs(n) - pruned) * (2 * k + 2) + 2 * n


def fvfm(n: int, k: int, pruned: int = 0) -> int:
    """Count FvFM's operations: a product of three vectors per pair (not listed in the paper)."""
    return (_pairs(n) - pruned) * (3 * k + 1) + 2 * n


def fmfm(
    dims: Sequence[int],
    cached: bool = False,
    pruned: Collection[tuple[int, int]] = (),
    order: Sequence[int] | None = None,
) -> int:
    """Count FmFM's operations for these dimensions; ``cached`` looks up the transformed vectors (section 4.2).

    A pair costs the product of vector and matrix, unless cached, and a dot product of the smaller dimension. A
    ``pruned`` pair costs nothing. ``order`` is the order of the fields in a compiled model. There, the dot product has
    the dimension of the earlier field, which is the smaller one for all pairs only if fields are ordered by dimension.

    For cached vectors of field-specific dimensions the paper counts n operations for the linear part and arrives at
    8,960; all its other figures count 2n, which would be 8,999. This function follows the paper.

    >>> fmfm([2, 5], cached=True), fmfm([2, 5], cached=True, order=[1, 0])
    (7, 13)
    """
    fields = sorted(range(len(dims)), key=dims.__getitem__) if order is None else order
    pairs = [(dims[i], dims[j]) for i, j in combinations(fields, 2) if (min(i, j), max(i, j)) not in pruned]
    transformation = 0 if cached else sum(2 * a * b for a, b in pairs)
    dot = sum(2 * earlier + 1 for earlier, _ in pairs)
    per_field = 1 if cached and len(set(dims)) > 1 else 2
    return transformation + dot + per_field * len(dims)


def spectral(n: int, rank: int) -> int:
    """Count the operations of a cut spectrum: the sum of n vectors, its signed squares, and the linear part.

    >>> spectral(39, 16)
    734
    """
    return rank * (n - 1) + 3 * rank + 2 * n
