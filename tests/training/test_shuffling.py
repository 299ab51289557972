"""The order of the rows in an epoch: complete, random, reproducible, resumable."""

from __future__ import annotations

import numpy as np
import pytest

from fm2.training.shuffling import shuffled

SMALL = {"block": 8, "group": 32}


def order(rows: int, seed: int = 0, batch: int = 10, **options: int) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *shuffled(rows, [seed, 0], batch, **options)])


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 31, 32, 33, 100, 256, 1001])
def test_every_row_occurs_once(rows):
    np.testing.assert_array_equal(np.sort(order(rows, **SMALL)), np.arange(rows))
    np.testing.assert_array_equal(np.sort(order(rows)), np.arange(rows))


def test_all_batches_but_the_last_are_full():
    sizes = [len(batch) for batch in shuffled(1001, [0, 0], 10, **SMALL)]
    assert sizes == [10] * 100 + [1]


@pytest.mark.parametrize("skip", [0, 10, 30, 40, 990, 1001])
def test_it_resumes_after_skipped_rows(skip):
    np.testing.assert_array_equal(order(1001, skip=skip, **SMALL), order(1001, **SMALL)[skip:])


def test_it_is_random_and_reproducible():
    np.testing.assert_array_equal(order(500, seed=1), order(500, seed=1))
    assert (order(500, seed=1) != order(500, seed=2)).any()
    places = np.mean([order(1000, seed=seed, **SMALL) for seed in range(300)], axis=0)  # of the rows, on average
    assert np.abs(places - 499.5).max() < 5 * 289 / 300**0.5


def test_groups_mix_rows_from_everywhere():
    first = order(100_000, block=8, group=1024)[:1024]
    assert np.histogram(first, bins=10, range=(0, 100_000))[0].min() > 40
