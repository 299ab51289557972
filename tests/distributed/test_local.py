"""Messages through shared memory, between threads that stand for workers of one machine."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fm2.distributed import local

WORKERS, STEPS = 3, 20


def run(function):
    """Return what a function returns for each worker."""
    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(function, range(WORKERS)))


def connect_all(seconds):
    """Return the channels of each worker."""
    values = [None] * WORKERS
    barrier = threading.Barrier(WORKERS)

    def connect(index):
        def collect(value):
            values[index] = value
            barrier.wait(10)
            return values

        return local.connect(index, WORKERS, 2, seconds, collect)

    return run(connect)


@pytest.fixture
def seconds():
    """The time after which a worker has failed."""
    return 10.0


@pytest.fixture
def channels(seconds):
    """The channels of each worker, which are closed after the test."""
    connected = connect_all(seconds)
    yield connected
    for own in connected:
        for channel in own:
            channel.close()


def message(step, sender, receiver):
    random = np.random.default_rng([step, sender, receiver])
    return random.random(random.integers(0, 10 * step * step + 1), np.float32)  # larger with every step, or empty


def test_every_message_arrives(channels):
    def exchange(index):
        for step in range(STEPS):
            parts = [message(step, index, other) for other in range(WORKERS)]
            expected = [message(step, other, index) for other in range(WORKERS)]
            out = np.empty(sum(map(len, expected)), np.float32)
            sizes = [len(part) for part in parts], [len(part) for part in expected]
            channels[index][step % 2].start_exchange(np.concatenate(parts), *sizes, out)()
            np.testing.assert_array_equal(out, np.concatenate(expected))

    run(exchange)


def test_sums_are_the_same_on_all_workers(channels):
    def add(index):
        values = np.random.default_rng(index).random(1000, np.float32)
        channels[index][0].start_sum(values)()
        return values

    first, *others = run(add)
    parts = [np.random.default_rng(index).random(1000, np.float32) for index in range(WORKERS)]
    np.testing.assert_array_equal(first, parts[0] + parts[1] + parts[2])
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("seconds", [0.1])
def test_a_worker_that_is_silent_or_gone_is_an_error(channels):
    finish = channels[0][0].start_exchange(np.zeros(3, np.float32), [1, 1, 1], [1, 1, 1], np.zeros(3, np.float32))
    with pytest.raises(TimeoutError):
        finish()
    for own in channels[1:]:
        own[0].close()
    with pytest.raises(ConnectionError):
        finish()


def test_memory_has_no_name_that_could_be_left_behind(channels):
    test_every_message_arrives(channels)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:fm2" in line]
    assert mapped
    assert all(line.endswith("(deleted)") for line in mapped)


def test_workers_of_several_machines_share_no_memory(monkeypatch):
    machines = iter(range(WORKERS))
    monkeypatch.setattr(local, "_machine", lambda: next(machines))
    assert connect_all(10.0) == [[]] * WORKERS
