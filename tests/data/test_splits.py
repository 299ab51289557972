"""Random and ordered splits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fm2 import Fm2Error
from fm2.data.splits import check_fractions, ordered_split, random_split

fractions = st.tuples(st.floats(0.05, 1), st.floats(0, 1), st.floats(0, 1)).map(
    lambda shares: tuple(share / sum(shares) for share in shares)
)


@given(fractions, st.integers(-(2**63), 2**63 - 1))
def test_a_random_split_has_the_requested_shares_and_depends_on_the_row_number_only(shares, seed):
    rows = np.arange(20_000)
    split = random_split(rows, shares, seed)
    assert np.abs(np.bincount(split, minlength=3) / len(rows) - shares).max() < 0.025
    assert (random_split(rows[::-7], shares, seed) == split[::-7]).all()


def test_different_seeds_yield_different_splits():
    rows = np.arange(1000)
    assert (random_split(rows, (0.5, 0.3, 0.2), 1) != random_split(rows, (0.5, 0.3, 0.2), 2)).any()


@given(st.lists(st.lists(st.integers(-(2**40), 2**40) | st.integers(0, 3), max_size=30), min_size=1), fractions)
def test_an_ordered_split_follows_the_order_and_keeps_equal_values_together(blocks, shares):
    arrays = [np.array(block, dtype=np.int64) for block in blocks]
    times = np.concatenate(arrays)
    split = ordered_split(lambda: arrays, shares)(times)
    assert (np.diff(split[np.argsort(times, kind="stable")].astype(int)) >= 0).all()
    for value in set(times.tolist()):
        assert len(set(split[times == value].tolist())) == 1
    for part, share in enumerate(np.cumsum(shares)[:2]):
        if len(times):  # the boundary is at the requested rank, except for rows with the same value
            rank = min(len(times), max(1, round(len(times) * share)))
            boundary = np.sort(times)[rank - 1]
            assert (split[times <= boundary] <= part).all()


@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.8, 0.1, 0.2), (1.2, -0.1, -0.1), (0, 0.5, 0.5)])
def test_invalid_fractions_are_errors(shares):
    with pytest.raises(Fm2Error, match=r"prepare: (the )?fractions"):
        check_fractions(shares)
