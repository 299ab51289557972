"""Tables of the paper that models and benchmarks use."""

from __future__ import annotations

# Section 4.1: the dimensions that keep 95 % of the variance of Criteo's fields, and the field sizes at threshold 8.
CRITEO_DIMS = (
    *(3, 8, 5, 7, 9, 8, 6, 5, 8, 3, 5, 3, 6, 8, 12, 2, 11, 5, 4, 14),
    *(8, 2, 13, 14, 8, 13, 4, 14, 10, 6, 14, 12, 2, 9, 4, 6, 12, 7, 11),
)
CRITEO_FIELD_SIZES = (
    *(62, 113, 125, 50, 223, 147, 99, 78, 103, 8, 31, 56, 81, 1_457, 555, 245_195, 166_164, 305, 18, 12_054),
    *(633, 3, 46_329, 5_228, 243_452, 3_176, 26, 11_744, 225_320, 10, 4_726, 2_056, 3, 238_638, 16, 15, 67_854, 87),
    50_940,
)
