"""Tables of the paper that models and benchmarks use."""

from __future__ import annotations

# Section 4.1: the dimensions of Criteo's fields that keep 95% of the variance. data/presets.py has the field sizes.
CRITEO_DIMS = (
    *(3, 8, 5, 7, 9, 8, 6, 5, 8, 3, 5, 3, 6, 8, 12, 2, 11, 5, 4, 14),
    *(8, 2, 13, 14, 8, 13, 4, 14, 10, 6, 14, 12, 2, 9, 4, 6, 12, 7, 11),
)
