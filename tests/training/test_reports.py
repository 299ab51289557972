"""What ``fm2.train`` and the functions that train smaller models show while they train."""

from __future__ import annotations

import pytest
from tests.helpers.planted import QUICK, SCHEMA, planted

import fm2
from fm2.training.progress import TrainingDisplay

EPOCH = {**QUICK, "epochs": 1, "threads": 1}
SMALLER = {"shrink": {"variance": 0.5}, "prune": {}, "cut": {"rank": 2}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fm2.prepare(planted(1000), SCHEMA, tmp_path_factory.mktemp("reports") / "data", progress=False)


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return fm2.train("fmfm", dataset, tmp_path_factory.mktemp("reports") / "run", dim=4, **EPOCH)


@pytest.fixture
def displays(monkeypatch):
    """The displays that are created."""
    created = []

    def create(self, terminal=None):
        created.append(terminal)
        original(self, terminal)

    original = TrainingDisplay.__init__
    monkeypatch.setattr(TrainingDisplay, "__init__", create)
    return created


def test_training_shows_its_progress_unless_it_is_told_otherwise(dataset, displays, tmp_path):
    fm2.train("lr", dataset, tmp_path / "default", **EPOCH)
    assert displays == [None]
    fm2.train("lr", dataset, tmp_path / "silent", progress=False, **EPOCH)
    fm2.train("lr", dataset, tmp_path / "own", callback=lambda report: None, **EPOCH)
    assert displays == [None]
    fm2.train("lr", dataset, tmp_path / "both", callback=lambda report: None, progress=True, **EPOCH)
    assert displays == [None, True]


def test_a_race_has_one_display(dataset, displays, tmp_path):
    fm2.train("lr", dataset, tmp_path / "run", effort=2, **EPOCH)
    assert displays == [None]


@pytest.mark.parametrize("name", SMALLER)
def test_smaller_models_are_trained_with_the_same_display(dataset, run, displays, tmp_path, name):
    make, options = getattr(fm2, name), {**SMALLER[name], "epochs": 1}
    make(run, dataset, tmp_path / "default", **options)
    assert displays == [None]
    make(run, dataset, tmp_path / "silent", progress=False, **options)
    reports = []
    make(run, dataset, tmp_path / "own", watch=reports.append, **options)
    assert displays == [None]
    assert reports


def test_classifiers_are_silent(displays):
    from fm2.estimators import LRClassifier

    log = planted(200)
    LRClassifier(epochs=1).fit(log.drop("click"), log["click"])
    assert displays == []
