"""Where the paper contradicts itself, with the figures that it would have to have."""

from __future__ import annotations

from fm2.models.paper import CRITEO_DIMS
from fm2.studies.reproduction.published import CACHED_SHRUNK, PARAMETERS, QUALITY, SAMPLES, K


def contradictions(log: str) -> list[str]:
    """Tell what of the published figures for a data set does not fit the paper's own formulas or words."""
    return _of_criteo() if log == "criteo" else _of_avazu()


def _of_criteo() -> list[str]:
    m, n = SAMPLES["criteo"].features, SAMPLES["criteo"].fields
    fm, pairs = m * (1 + K), n * (n - 1) // 2
    ours = sum(2 * min(a, b) + 1 for i, a in enumerate(CRITEO_DIMS) for b in CRITEO_DIMS[i + 1 :])
    return [
        f"Table 2's parameters are not those of K = {K}. FM's {PARAMETERS['fm']} M is m + mK at K = 10; with K = {K} "
        f"it is {fm / 1e6:.2f} M. FwFM's and FmFM's are the same figure, without their pairs; FmFM's with K = {K} is "
        f"{(fm + pairs * K**2) / 1e6:.2f} M. FFM's {PARAMETERS['ffm']} M is m(n-1)K at K = 17, m being 1.33 M and the "
        f"linear weights left out; with K = {K} it is {m * (1 + (n - 1) * K) / 1e6:.2f} M.",
        f"Table 4 counts 2n = {2 * n} operations for the linear part of LR, FwFM, FFM and FmFM and none for that of "
        f"FM, but n = {n} in the cached model at 95 % of the variance: its {CACHED_SHRUNK:,} would be "
        f"{ours + 2 * n:,} by the others' counting. Ours of models with dimensions per field follow it.",
        "Table 4 has DeepFM at half of Wide & Deep's operations, though both have the same perceptron.",
    ]


def _of_avazu() -> list[str]:
    least = min(QUALITY["avazu"], key=lambda row: row.log_loss)
    return [f"Table 7 marks DeepLight's log loss of 0.3748 as the best, but {least.title}'s is {least.log_loss:.4f}."]
