"""Two torchrun agents in network namespaces; a worker of either is killed."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
from tests.distributed.test_nodes import alone, check_nodes, train_words
from tests.distributed.test_runs import check_same_model
from tests.helpers.nodes import namespaces, torchrun
from tests.helpers.random_kills import command_of, descendants

from fm2.artifacts.run_directory import HISTORY

__all__ = ["alone"]  # a fixture


@pytest.fixture(scope="module")
def nodes():
    """Two nodes that reach each other, and nothing else, through a link."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces require root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces require the command 'ip' of iproute2")
    with namespaces() as created:
        yield created


def test_two_nodes_train_the_model_of_one_process(nodes, alone, tmp_path):
    check_nodes(nodes, alone, tmp_path / "run")


@pytest.mark.parametrize("node", [0, 1])
def test_the_workers_of_both_nodes_are_restarted_if_one_is_killed(nodes, alone, tmp_path, node):
    out = tmp_path / "run"
    words = train_words(alone, out, "--time-limit", "60")
    with torchrun(nodes, words, restarts=2) as agents:
        deadline = time.monotonic() + 120
        while not (out / HISTORY).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (worker,) = (
            each for each in descendants(agents[node].pid) if "fm2 train" in command_of(each).partition("-m")[2]
        )
        os.kill(worker, signal.SIGKILL)
        printed = [agent.communicate(timeout=180)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(printed)
    assert "exitcode: -9" in printed[node], printed[node]
    check_same_model(alone / "run", out)
