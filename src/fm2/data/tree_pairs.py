"""Select pairs of fields that explain the residuals of trees, which read the fields one by one."""

from __future__ import annotations

from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.tree_inputs import TreeRows

MOST_PAIRS = 8
# The least gain, as a share of the log loss and in standard errors, and the probability that any pair is chosen by
# chance alone. With 0.0003, 3 and 0.01, effects that the generated logs user_item (category and device) and few_fields
# (hour and device) really have are missed: the test log loss of FmFM with trees on user_item is .3511 instead of .3489.
# Without the limit for chance, avazu gets pairs of noise: .4070 instead of .4056.
LEAST_GAIN, LEAST_Z, FALSE_RATE = 0.0001, 2.0, 0.1


def select_pairs(
    rows: TreeRows,
    logits: NDArray[np.float32],
    validation: TreeRows,
    validation_logits: NDArray[np.float32],
    seed: int,
    threads: int,
) -> list[tuple[int, int]]:
    """Choose pairs of parts, one by one, by how much their residuals lower the log loss of the validation rows.

    The logits are predictions of trees that were not fitted to the rows.
    """
    parts = [part for part in range(rows.ids.shape[1]) if len(rows.vocabularies[part]) > 2]
    candidates = list(combinations(parts, 2))
    if not len(validation.labels) or not candidates:
        return []
    halves = np.random.default_rng(seed).integers(0, 2, len(logits)).astype(np.uint8)
    training_ids, validation_ids = (np.ascontiguousarray(each.ids.T) for each in (rows, validation))
    logits, validation_logits = logits.copy(), validation_logits.copy()

    def ranking() -> _native.CrossRanking:
        probabilities = (1 / (1 + np.exp(-logits))).astype(np.float32)
        return _native.CrossRanking(
            training_ids,
            rows.weights * (rows.labels - probabilities),
            rows.weights * probabilities * (1 - probabilities),
            halves,
            np.ones(len(logits), np.float32),
            validation_ids,
            validation_logits,
            validation.labels,
            validation.weights,
        )

    losses = np.logaddexp(0, validation_logits) - validation.labels * validation_logits
    least = LEAST_GAIN * float(np.average(losses, weights=validation.weights))
    least_z = max(LEAST_Z, NormalDist().inv_cdf(1 - FALSE_RATE / len(candidates)))
    chosen: list[tuple[int, int]] = []
    while candidates and len(chosen) < MOST_PAIRS:
        measured = ranking()
        gains = measured.measure([list(pair) for pair in candidates], 1, threads)
        good = [
            (gain, pair)
            for pair, (gain, error, *_) in zip(candidates, gains, strict=True)
            if gain > least and error and gain / error > least_z
        ]
        if not good:
            break
        good.sort(key=lambda entry: (-entry[0], entry[1]))
        best = good[0][1]
        chosen.append(best)
        for of_split, shifts in zip((logits, validation_logits), measured.shifts(list(best), 1), strict=True):
            of_split += shifts
        candidates = [pair for _, pair in good[1:]]
    return chosen
