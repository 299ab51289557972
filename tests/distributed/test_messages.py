"""Messages with room for a little more than the previous ones: what does not fit arrives later, and nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from fm2._native import Layout
from fm2.distributed.early import EarlyRows
from fm2.distributed.messages import Requests
from fm2.distributed.rows import Demand, Lookup, RowPacker, Rows

FEATURES, DIM, WORKERS = 1000, 4, 3
FIELDS = np.zeros(1, np.int32)


class Exchanges:
    """Threads that stand for workers; ``count`` is the number of exchanges."""

    def __init__(self):
        self.count = 0
        self._parts = [[]] * WORKERS
        self._barrier = threading.Barrier(WORKERS)

    def worker(self, index):
        others = [other for other in range(WORKERS) if other != index]

        def exchange(values, send, receive, ahead=False, out=None):
            self._parts[index] = np.split(values.copy(), np.cumsum(send)[:-1])
            self._barrier.wait(10)
            received = [self._parts[other][index] for other in range(WORKERS)]
            assert [len(part) for part in received] == list(receive)
            if self._barrier.wait(10) == 0:
                self.count += 1
            result = np.concatenate(received)
            if out is not None:
                out[:] = result
            return result

        return SimpleNamespace(index=index, count=WORKERS, others=others, exchange=exchange)

    def run(self, function):
        """Return what a function returns for each worker."""
        with ThreadPoolExecutor(WORKERS) as threads:
            return list(threads.map(function, range(WORKERS)))


def draw(step, sender, receiver, count):
    """Return the features that a worker needs from another in a step."""
    return np.random.default_rng([step, sender, receiver]).permutation(FEATURES)[:count].astype(np.int32)


@pytest.mark.parametrize(("ahead", "exchanges"), [(True, [2, 1, 2, 2, 1]), (False, [2, 2, 2, 2, 2])])
def test_requests_arrive_whether_or_not_they_fit(ahead, exchanges):
    network = Exchanges()
    requests = [Requests(network.worker(index)) for index in range(WORKERS)]
    counted = []
    for step, count in enumerate([200, 210, 900, 1000, 5]):  # the third and fourth are larger than their room

        def request(index, step=step, count=count):
            features = [draw(step, index, other, count - other) for other in range(WORKERS)]
            counts = np.array([[len(each)] for each in features], np.int32)
            return requests[index].exchange(counts, features, ahead)

        before = network.count
        for index, (counts, found) in enumerate(network.run(request)):
            assert counts.ravel().tolist() == [count - index] * WORKERS
            for other in range(WORKERS):
                np.testing.assert_array_equal(found[other], draw(step, other, index, count - index))
        counted.append(network.count - before)
    assert counted == exchanges


def test_early_rows_that_do_not_fit_stay_missing():
    network = Exchanges()
    layout = Layout(np.zeros(1, np.int64), np.array([DIM], np.int32), np.array([FEATURES], np.int32))
    shards = {"embedding": SimpleNamespace(dims=np.array([DIM], np.int32))}
    early = [EarlyRows(network.worker(index), RowPacker(shards, {"embedding": 0})) for index in range(WORKERS)]
    fetched = []
    for step, count in enumerate([100, 100, 300, 20]):

        def fetch(index, step=step, count=count):
            weights = np.arange(FEATURES * DIM, dtype=np.float32) + 1e5 * (index + 1)
            slot = np.zeros(FEATURES * DIM, np.float32)
            number = np.array([count], np.int32)
            needs = [
                [Rows(FIELDS, number, np.arange(count, dtype=np.int32) + other * count)] for other in range(WORKERS)
            ]
            serves = [[Rows(FIELDS, number, draw(step, other, index, count))] for other in range(WORKERS)]
            marks = [(spaces[0].features % 2).astype(np.uint8) for spaces in serves]  # odd ones are late
            rows = Demand(needs, serves)
            lookup = Lookup(SimpleNamespace(weights=lambda: {"embedding": (layout, slot)}), rows, rows)
            early[index].fetch({"embedding": (layout, weights)}, lookup, marks)
            return slot.reshape(-1, DIM), lookup.missing

        results = network.run(fetch)
        present = 0
        for index, (slot, missing) in enumerate(results):
            for other in range(WORKERS):
                asked = draw(step, index, other, count)
                late = missing.needs[other][0].features - other * count
                np.testing.assert_array_equal(asked[late], results[other][1].serves[index][0].features)
                kept = np.setdiff1d(np.arange(count), late)
                assert np.all(asked[kept] % 2 == 0)
                np.testing.assert_array_equal(slot[other * count + kept, 0], asked[kept] * DIM + 1e5 * (other + 1))
                present += len(kept) if other != index else 0
        fetched.append(present / (count * WORKERS * (WORKERS - 1)))
    assert fetched[0] == 0  # no room yet
    assert fetched[1] == pytest.approx(0.5, abs=0.1)
    assert 0.1 < fetched[2] < 0.4  # some of them
    assert fetched[3] == pytest.approx(0.5, abs=0.2)
