"""Ray clusters: how many tasks they run at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import fm2
from fm2.ray_cluster import count_tasks

NODES = [(6, True), (3, True), (64, False)]
RAY = SimpleNamespace(nodes=lambda: [{"Resources": {"CPU": float(cpus)}, "Alive": alive} for cpus, alive in NODES])


def test_a_task_runs_on_one_machine_that_is_alive():
    assert [count_tasks("prepare", RAY, threads) for threads in (1, 2, 4, 6)] == [9, 4, 1, 1]


def test_more_threads_than_any_machine_has_are_reported():
    with pytest.warns(fm2.Fm2Warning, match="tune: no machine of the Ray cluster has 8 CPUs; tasks wait"):
        assert count_tasks("tune", RAY, 8) == 1
