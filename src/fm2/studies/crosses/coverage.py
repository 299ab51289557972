"""Whether the combinations of the training rows still occur in other rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A cross must keep this share of its coverage. On a log of movie ratings whose test rows are each user's last ones, a
# cross of the user and the number of ratings so far covered 99% of the training rows and 47% of the test rows.
KEPT = 0.75

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Coverage:
    """The share of the rows whose combination is frequent enough: among the other training rows, and in other splits.

    A training row does not count itself. If all splits are drawn from the same distribution, all shares are about
    equal.
    """

    training: float
    later: Mapping[str, float]

    def lost(self) -> str | None:
        """Describe the split whose combinations are mostly new; None if there is none."""
        for split, share in self.later.items():
            if share < KEPT * self.training:
                known = f"known in {share:.0%} of the {split} rows, but in {self.training:.0%} of the training rows"
                return f"its combinations are {known}"
        return None


def measure_coverage(
    training: Ids, counts: NDArray[np.float32], later: Mapping[str, Ids], min_count: float
) -> Coverage:
    """Measure the coverage of ``later`` splits by combinations that occur at least ``min_count`` times in training.

    Ids are parts × rows; a combination with an unknown part, the id 0, is unknown. ``counts`` says how often a training
    row counts.

    >>> ids = np.array([[1, 1, 1, 2], [1, 1, 1, 2]], np.int32)
    >>> later = {"test": np.array([[1, 2, 0], [1, 2, 1]], np.int32)}
    >>> measure_coverage(ids, np.ones(4, np.float32), later, min_count=2)
    Coverage(training=0.75, later={'test': 0.3333333333333333})
    """
    splits = [training, *later.values()]
    codes, known = _codes(np.concatenate(splits, axis=1))
    ends = np.cumsum([ids.shape[1] for ids in splits])
    own, *others = np.split(codes, ends[:-1])
    own_known, *others_known = np.split(known, ends[:-1])
    totals = np.bincount(own, counts, minlength=int(codes.max(initial=0)) + 1)
    covered = own_known & (totals[own] - counts >= min_count)
    shares = [
        float(np.mean(flags & (totals[ids] >= min_count))) for ids, flags in zip(others, others_known, strict=True)
    ]
    return Coverage(float(np.mean(covered)), dict(zip(later, shares, strict=True)))


def _codes(ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Number the combinations of all rows; return whether all their parts are known, too."""
    codes = ids[0].astype(np.int64)
    for part in ids[1:]:
        codes = np.unique(codes * (int(part.max(initial=0)) + 1) + part, return_inverse=True)[1]
    known: NDArray[np.bool_] = np.min(ids, axis=0) > 0
    return codes, known
