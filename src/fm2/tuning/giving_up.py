"""When a trial is not worth going on with."""

from __future__ import annotations

from collections.abc import Sequence

# What is given up has to be beyond hope: it would have to gain more than so many times what its last epoch gained.
# The usual rule compares trials at the same evaluation, and prefers those that learn fast, which are not those that end
# well: on Criteo's small log it gave up the third best of ten after an epoch, and would have given up the best.
EPOCHS_OF_HOPE = 2.0


def is_hopeless(values: Sequence[float], per_epoch: int, target: float) -> bool:
    """Tell whether a trial will not reach a value, from its evaluations so far; lower is better.

    Gains shrink from epoch to epoch while a model learns, so twice what the last one gained is more than is to come.

    >>> is_hopeless([0.52, 0.50, 0.49], per_epoch=1, target=0.475)
    False
    >>> is_hopeless([0.52, 0.50, 0.49, 0.489], per_epoch=1, target=0.475)
    True
    """
    if len(values) <= per_epoch:
        return False
    now, before = min(values), min(values[:-per_epoch])
    return now - EPOCHS_OF_HOPE * (before - now) > target
