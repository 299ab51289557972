"""Two torchrun agents, as on two machines, train the model of one process."""

from __future__ import annotations

import pytest
from tests.distributed.test_runs import check_same_model
from tests.helpers.nodes import LOOPBACK, torchrun
from tests.helpers.planted import SCHEMA, planted

import fm2

SETTINGS = {"epochs": 2, "batch_size": 64, "evaluations_per_epoch": 10, "threads": 1}
OPTIONS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The directory of the data, and of the run of one process."""
    path = tmp_path_factory.mktemp("alone")
    fm2.prepare(planted(1500), SCHEMA, path / "data")
    fm2.train("fmfm", path / "data", path / "run", **SETTINGS)
    return path


def train_words(alone, out, *more):
    return ["train", "fmfm", str(alone / "data"), "--out", str(out), *OPTIONS, *more]


def check_nodes(nodes, alone, out):
    with torchrun(nodes, train_words(alone, out)) as agents:
        printed = [agent.communicate(timeout=120)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(printed)
    assert "".join(printed).count("fmfm in ") == 1  # the first worker prints the scores
    check_same_model(alone / "run", out)


def test_two_agents_on_loopback_train_the_model_of_one_process(alone, tmp_path):
    check_nodes(LOOPBACK, alone, tmp_path / "run")
