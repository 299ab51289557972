"""When a trial is not worth going on with."""

from __future__ import annotations

from collections.abc import Sequence

# What is given up has to be beyond hope: it would have to gain more than so many times what its last epoch gained.
# The usual rule compares trials at the same evaluation, and prefers those that learn fast, which are not those that end
# well: on Criteo's small log it gave up the third best of ten after an epoch, and would have given up the best.
EPOCHS_OF_HOPE = 2.0


def is_hopeless(values: Sequence[float], per_epoch: int, best: Sequence[float]) -> bool:
    """Tell from its evaluations so far whether a trial will not be better than another was; lower is better.

    Gains shrink from epoch to epoch while a model learns, so twice what the last one gained is more than is to come.
    But where interactions are slow to begin, a plateau comes first: as long as the best trial itself looked hopeless,
    none is given up.

    >>> is_hopeless([0.52, 0.50, 0.49], per_epoch=1, best=[0.51, 0.48, 0.475])
    False
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, best=[0.51, 0.48, 0.475])
    True
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, best=[0.5, 0.499, 0.4985, 0.498, 0.48, 0.475])
    False
    """
    return len(values) > _plateau(best, per_epoch) and _is_too_far(values, per_epoch, min(best))


def _plateau(values: Sequence[float], per_epoch: int) -> int:
    """Tell after how many of its evaluations a trial looked for the last time as if it would not end where it did."""
    ends = [end for end in range(len(values)) if _is_too_far(values[:end], per_epoch, min(values))]
    return max(ends, default=0)


def _is_too_far(values: Sequence[float], per_epoch: int, target: float) -> bool:
    if len(values) <= per_epoch:
        return False
    now, before = min(values), min(values[:-per_epoch])
    return now - EPOCHS_OF_HOPE * (before - now) > target
