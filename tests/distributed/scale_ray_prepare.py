"""Preparing with Ray: tasks that are killed, a cluster that fm2 starts, and all kinds of fields."""

from __future__ import annotations

import pytest
from tests.data.test_parts import FILES, VARIANTS, log, write_files
from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log
from tests.helpers.parts import check_same_dataset
from tests.helpers.ray_prepare import killed_always, killed_once
from tests.helpers.workers import ROOT

import fm2
from fm2 import Fm2Error
from fm2.data import part_tasks

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def ray(monkeypatch):
    """A cluster of two CPUs on this machine."""
    ray = pytest.importorskip("ray")  # not when pytest looks for doctests
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    yield ray
    ray.shutdown()


def test_a_killed_task_is_repeated(tmp_path, monkeypatch, ray):
    paths = write_files(tmp_path, log(900))
    one = fm2.prepare(paths, VARIANTS["sampled"][0], tmp_path / "one")
    monkeypatch.setattr(part_tasks, "read_part", killed_once)
    parts = fm2.prepare(paths, VARIANTS["sampled"][0], tmp_path / "parts", engine="ray")
    assert (tmp_path / "killed").exists()
    check_same_dataset(one, parts, FILES)


def test_an_error_names_the_file_whose_task_is_killed_again_and_again(tmp_path, monkeypatch, ray):
    paths = write_files(tmp_path, log(300))
    monkeypatch.setattr(part_tasks, "read_part", killed_always)
    with pytest.raises(Fm2Error, match=r"prepare: the Ray task for .*log-1.csv failed: .*died"):
        fm2.prepare(paths, VARIANTS["random"][0], tmp_path / "parts", engine="ray")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".parts", "parts"))]


def test_all_kinds_of_fields_in_a_cluster_that_fm2_starts(tmp_path):
    paths = write_files(tmp_path, everything_log(600), extension="parquet")
    one = fm2.prepare(paths, EVERYTHING_SCHEMA, tmp_path / "one")
    check_same_dataset(one, fm2.prepare(paths, EVERYTHING_SCHEMA, tmp_path / "parts", engine="ray"), FILES)


def test_an_address_without_a_cluster_is_reported(tmp_path):
    pytest.importorskip("ray")
    paths = write_files(tmp_path, log(100))
    with pytest.raises(Fm2Error, match=r"prepare: cannot connect to the Ray cluster at 127.0.0.1:1: "):
        fm2.prepare(paths, VARIANTS["random"][0], tmp_path / "parts", engine="ray", address="127.0.0.1:1")
