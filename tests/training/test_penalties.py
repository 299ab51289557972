"""Ordinary trainings on logs of medium size, which compare variants: three forms of L2, simpler field matrices."""

from __future__ import annotations

import json
import math

import pytest
from tests.helpers.planted import SCHEMA, planted
from tests.helpers.races import FAST, ORDINARY, Interrupt, names, record_of
from tests.helpers.runs import compare_runs

from fm2 import prepare
from fm2.artifacts.settings import Settings
from fm2.cli.main import main
from fm2.errors import Fm2Error
from fm2.training.candidates import default_candidates
from fm2.training.resolve import log_for_defaults
from fm2.training.train import train


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(planted(1500, values=6), SCHEMA, tmp_path_factory.mktemp("penalties") / "data")


@pytest.fixture
def medium(monkeypatch):
    """Make the log one of medium size, on which an ordinary training compares variants."""
    monkeypatch.setattr("fm2.training.candidates.FEWEST_ROWS", 1000)
    monkeypatch.setattr("fm2.training.candidates.FEWEST_FOR_MATRICES", 1200)


@pytest.mark.usefixtures("medium")
@pytest.mark.parametrize("model", ["lr", "fm", "fwfm", "fvfm", "fmfm"])
def test_ordinary_trainings_keep_the_best_variant(dataset, tmp_path, model, monkeypatch):
    monkeypatch.setattr("fm2.training.race.FAR_BEHIND", (math.inf,) * 3)  # all variants train to the end
    stages = {}
    run = train(model, dataset, tmp_path / "run", callback=lambda report: stages.setdefault(report.stage), **FAST)
    record = record_of(run)
    defaults = Settings.of(model, len(dataset.train), dataset.field_sizes)
    # l2_power, and the penalty of features that occur 100 times; LR tries the second form with two strengths
    penalties = [(1, 1), (1, 2), (0, 1)] if model == "lr" else [(1, 1), (0, 1)]
    penalties += [(1, 1), (0, 1), (1, 1), (1, 1), (defaults.l2_power, 1)] if model == "fmfm" else []
    count = 1 + len(penalties)
    assert list(stages)[:count] == [f"candidate {number} of {count}, round 1 of 4" for number in range(1, count + 1)]
    assert record.summary().startswith(f"compared {count} variants: chose ")
    others = [candidate.changes for candidate in record.candidates[1:]]
    matrices = (
        [None, None, "diagonal", "diagonal", "scalar", "scalar", "scalar"] if model == "fmfm" else [None] * (count - 1)
    )
    assert [each.get("matrices") for each in others] == matrices
    unchanged = {"l2": defaults.l2, "l2_power": defaults.l2_power, "field_dropout": defaults.field_dropout}
    for other, (power, strength) in zip(others, penalties, strict=True):
        values = {**unchanged, **other}
        assert values["l2_power"] == power
        before = defaults.l2 / 100**defaults.l2_power
        assert values["l2"] / 100**power == pytest.approx(strength * before, rel=0.01)
        assert values["field_dropout"] == (0 if "l2" in other else defaults.field_dropout)
    scores = []
    for number, changes in enumerate(({}, *others)):  # a penalty that is given is the only one
        alone = train(model, dataset, tmp_path / str(number), **{"l2": defaults.l2, **changes}, **FAST)
        assert names(alone.path) == ORDINARY
        scores.append(alone.metrics["log_loss"])
    assert [candidate.scores[-1] for candidate in record.candidates] == scores
    assert run.metrics["log_loss"] == min(scores)
    compare_runs(run.path, tmp_path / str(scores.index(min(scores))))


@pytest.mark.usefixtures("medium")
def test_the_command_says_how_many_variants_are_compared(dataset, tmp_path, capsys):
    command = ["train", "lr", str(dataset.path), "--epochs", "1", "--threads", "1", "--out"]
    assert main([*command, str(tmp_path / "two")]) == 0
    start = f"fm2: training lr on {len(dataset.train):,} rows"
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == f"{start} in 4 variants; the best one is kept at the end ..."
    assert last.startswith("fm2: compared 4 variants: chose ")
    assert main([*command, str(tmp_path / "one"), "--l2", "0.1"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == f"{start} ..."


@pytest.mark.usefixtures("medium")
def test_a_comparison_of_penalties_can_be_resumed(dataset, tmp_path):
    whole = train("fmfm", dataset, tmp_path / "whole", **FAST)
    with pytest.raises(KeyboardInterrupt):
        train("fmfm", dataset, tmp_path / "parts", callback=Interrupt([90]), **FAST)
    train("fmfm", dataset, tmp_path / "parts", resume=True)
    compare_runs(whole.path, tmp_path / "parts")
    further = train("fmfm", dataset, tmp_path / "further", start=whole, **FAST)
    assert names(further.path) == ORDINARY


@pytest.mark.usefixtures("medium")
def test_auto_compares_the_penalties_of_models(dataset, tmp_path):
    record = record_of(train("auto", dataset, tmp_path / "run", **FAST))
    models = [candidate.model for candidate in record.candidates]
    assert models == [*["lr"] * 4, *["fm"] * 3, "ffm", *["fwfm"] * 3, *["fmfm"] * 8]
    assert record.summary().endswith("the best of 5 models")
    again = record_of(train("auto", dataset, tmp_path / "more", effort=2, **FAST))
    entered = [(each.model, json.dumps(each.changes, sort_keys=True)) for each in again.candidates]
    assert len(set(entered)) == len(entered)
    best, second = (again.candidates[number] for number in again.entered[:2])
    assert best.model != second.model  # not the two penalties of the best one


@pytest.mark.usefixtures("medium")
@pytest.mark.parametrize("given", [{"l2": 0.01}, {"l2": 0.0}, {"l2_power": 0.0}, {"field_dropout": 0.0}])
def test_a_penalty_that_is_given_is_the_only_one(dataset, tmp_path, given):
    assert names(train("fmfm", dataset, tmp_path / "run", **given, **FAST).path) == ORDINARY


@pytest.mark.parametrize("clear", [False, True])
def test_simpler_matrices_must_be_clearly_better_on_few_rows(dataset, tmp_path, monkeypatch, clear):
    monkeypatch.setattr("fm2.training.candidates.FEWEST_ROWS", 1000)
    monkeypatch.setattr("fm2.training.candidates.LEAST_GAIN", -1.0 if clear else 0.5)  # any loss will do, or half of it
    monkeypatch.setattr("fm2.training.race.FAR_BEHIND", (math.inf,) * 3)
    run = train("fmfm", dataset, tmp_path / "run", **FAST)
    record = record_of(run)
    assert len(record.candidates) == 8
    assert ("matrices" in record.candidates[record.winner].changes) == clear
    of_full = [each.scores[-1] for each in record.candidates if "matrices" not in each.changes]
    assert clear or run.metrics["log_loss"] == min(of_full)


@pytest.mark.usefixtures("medium")
def test_the_last_variants_of_fmfm_have_the_settings_of_fwfm(dataset):
    log = log_for_defaults(dataset)
    form, own = Settings.of("fwfm", *log), Settings.of("fmfm", *log)
    fixed = {"linear_std": 0.1}
    *_, equal, usual = default_candidates(own, log[0], (), log[2], log[1])
    settings = Settings.of("fmfm", *log, **usual)
    expected = form.used() | {"model": "fmfm", "matrices": "scalar"}
    assert settings.used() == expected
    assert Settings.of("fmfm", *log, **equal).used() == expected | {
        key: equal[key] for key in ("l2", "l2_power", "field_dropout")
    }
    assert "linear_std" in usual
    assert not any("linear_std" in each for each in default_candidates(own, log[0], fixed, log[2], log[1]))
    assert "dim" not in default_candidates(own, log[0], {"dim": 4}, log[2], log[1])[-1]


@pytest.mark.usefixtures("medium")
def test_matrices_that_are_given_are_the_only_ones(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", matrices="diagonal", **FAST)
    assert [candidate.changes.get("matrices") for candidate in record_of(run).candidates] == [None] * 3
    assert run.model.config["matrices"] == "diagonal"
    further = train("fmfm", dataset, tmp_path / "further", start=run, **FAST)
    assert further.model.config["matrices"] == "diagonal"
    with pytest.raises(Fm2Error, match="the model to start from has matrices diagonal, not full"):
        train("fmfm", dataset, tmp_path / "full", start=run, matrices="full", **FAST)


def test_small_logs_and_networks_are_trained_once(dataset, tmp_path, monkeypatch):
    assert names(train("fmfm", dataset, tmp_path / "small", **FAST).path) == ORDINARY
    monkeypatch.setattr("fm2.training.candidates.FEWEST_ROWS", 1000)
    assert names(train("deepfm", dataset, tmp_path / "network", **FAST).path) == ORDINARY
    assert names(train("ffm", dataset, tmp_path / "ffm", **FAST).path) == ORDINARY
