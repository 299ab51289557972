"""When to stop a trial early."""

from __future__ import annotations

from collections.abc import Sequence

# A trial is stopped if, to become the best, it would have to gain more than this many times the gain of its last epoch.
# Median pruning, which compares trials at the same evaluation, prefers settings that learn fast over settings that end
# well: on Criteo's small log it stopped the third best of ten trials after one epoch, and would have stopped the best.
GAINS = 2.0


def is_hopeless(losses: Sequence[float], per_epoch: int, best: Sequence[float]) -> bool:
    """Return whether a trial with these losses so far will not beat the best trial; ``per_epoch`` is evaluations.

    Gains shrink from epoch to epoch, so twice the last gain is more than a trial can still gain. The exception is a
    plateau at the start, where interactions are slow to learn: no trial is stopped before the evaluation at which the
    best trial itself last looked hopeless.

    >>> is_hopeless([0.52, 0.50, 0.49], per_epoch=1, best=[0.51, 0.48, 0.475])
    False
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, best=[0.51, 0.48, 0.475])
    True
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, best=[0.5, 0.499, 0.4985, 0.498, 0.48, 0.475])
    False
    """
    return len(losses) > _plateau(best, per_epoch) and _is_out_of_reach(losses, per_epoch, min(best))


def _plateau(losses: Sequence[float], per_epoch: int) -> int:
    """Return after how many evaluations a trial last looked as if it would not reach its final loss."""
    ends = [end for end in range(len(losses)) if _is_out_of_reach(losses[:end], per_epoch, min(losses))]
    return max(ends, default=0)


def _is_out_of_reach(losses: Sequence[float], per_epoch: int, target: float) -> bool:
    if len(losses) <= per_epoch:
        return False
    now, before = min(losses), min(losses[:-per_epoch])
    return now - GAINS * (before - now) > target
