"""Where the paper's figures contradict one another, its formulas or its text."""

from __future__ import annotations

from fm2.models import complexity
from fm2.models.paper import CRITEO_DIMS
from fm2.studies.reproduction.published import (
    CACHED,
    CACHED_SHRUNK,
    OPERATION_FORMULAS,
    OPERATIONS,
    PARAMETERS,
    QUALITY,
    SAMPLES,
    SHRUNK_MODEL,
    H,
    K,
    L,
    N,
    title_of,
)


def contradictions(log: str) -> list[str]:
    """Return the contradictions in the paper that concern a dataset."""
    if log == "avazu":
        return [_best_loss(), _gap("avazu")]
    return [_parameters(), _linear_part(), _networks(), _cross_network(), _gap("criteo"), _cheapest(), _speedup()]


def _parameters() -> str:
    m, pairs = SAMPLES["criteo"].features, N * (N - 1) // 2
    fm = m * (1 + K)
    return (
        f"The parameters in table 2 do not match K = {K}. FM's {PARAMETERS['fm']} M is m + mK at K = 10 with m rounded "
        f"to 1.33 M ({11 * m / 1e6:.2f} M with m = {m:,}); at K = {K} it is {fm / 1e6:.2f} M. FwFM and FmFM have the "
        f"same figure, without their pairs; at K = {K}, FmFM has {(fm + pairs * K**2) / 1e6:.2f} M. FFM's "
        f"{PARAMETERS['ffm']} M is m(n-1)K at K = 17, with m = 1.33 M and without linear weights; at K = {K} it is "
        f"{m * (1 + (N - 1) * K) / 1e6:.2f} M."
    )


def _linear_part() -> str:
    shrunk = complexity.fmfm(CRITEO_DIMS, cached=True)
    return (
        f"Table 4 counts 2n = {2 * N} FLOPs for the linear part of LR, FwFM, FFM and FmFM, none for that of FM, and "
        f"n = {N} for that of the cached model at 95% of the variance: its {CACHED_SHRUNK:,} would be {shrunk + N:,} "
        "if counted like the others. fm2 counts models with per-field dimensions like the paper."
    )


def _networks() -> str:
    return (
        f"Table 4 lists half as many FLOPs for DeepFM ({OPERATIONS['deepfm']:,}) as for Wide & Deep "
        f"({OPERATIONS['widedeep']:,}), although their formulas are the same. The figures of Wide & Deep, xDeepFM, "
        "AutoInt, FiBiNET and DeepLight are twice their formulas, a multiplication and an addition; DeepFM's is not."
    )


def _cross_network() -> str:
    network = 2 * (N * K * H + L * H**2)
    once = OPERATION_FORMULAS["dcn"][1]
    return (
        f"Deep & Cross has {OPERATIONS['dcn']:,} FLOPs in table 4. Its formula n²K² + nKH + LH² is {once:,.0f}, and "
        f"twice that if counted like Wide & Deep's, where 2n²K² = {2 * N**2 * K**2:,} alone exceeds the figure; only "
        f"{OPERATIONS['dcn'] - network:,} are left beside the perceptron's {network:,}."
    )


def _gap(log: str) -> str:
    """Compare the differences between training and test AUC of the factorization machines."""
    machines = ("fm", "ffm", "fwfm", "fvfm", "fmfm")
    gaps = {row.model: row.train - row.test for row in QUALITY[log] if row.model in machines and row.train is not None}
    titles = {row.model: row.title for row in QUALITY[log]}
    ranked = sorted(gaps, key=gaps.__getitem__)
    own = gaps[SHRUNK_MODEL]
    text = "Section 5.3 calls FmFM's ΔAUC of 0.0074 between training and test the lowest of the factorization machines"
    if log == "criteo":
        return f"{text}, but {titles[ranked[0]]}'s is {gaps[ranked[0]]:.4f}."
    higher = ", ".join(titles[name] for name in ranked if gaps[name] > own)
    order = ", ".join(f"{titles[name]} {gaps[name]:.4f}" for name in ranked)
    return f"{text}. On Avazu it is {own:.4f}, and only that of {higher} is higher: {order}."


def _cheapest() -> str:
    listed = ", ".join(f"{title_of(name)} {count:,}" for name, count in OPERATIONS.items() if count < CACHED_SHRUNK)
    return (
        "Section 5.4 says that the optimized FmFM has a higher AUC and lower FLOPs than all baselines except "
        f"Deep & Cross and DeepLight, but its {CACHED_SHRUNK:,} FLOPs are more than those of {listed}."
    )


def _speedup() -> str:
    full = OPERATIONS[SHRUNK_MODEL]
    return (
        f"Section 4.2 says that cached vectors are almost 20 times faster; {full:,} / {CACHED:,} FLOPs is "
        f"{full / CACHED:.1f}."
    )


def _best_loss() -> str:
    best = min(QUALITY["avazu"], key=lambda row: row.log_loss)
    return f"Table 7 marks DeepLight's log loss of 0.3748 as the best, but {best.title}'s is {best.log_loss:.4f}."
