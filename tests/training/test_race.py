"""Races: several settings or models train side by side, and the best one becomes an ordinary run."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.planted import SCHEMA, planted
from tests.helpers.races import FAST, ORDINARY, Interrupt, names, record_of
from tests.helpers.runs import compare_runs

from fm2 import Fm2Error, Run, prepare
from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import Settings, read_settings
from fm2.cli.main import main
from fm2.estimators import LRClassifier
from fm2.models.registry import model_names
from fm2.training.candidates import NUMBER, models_to_race, settings_around
from fm2.training.construction import make_model
from fm2.training.loop import DivergedError, TrainingLoop
from fm2.training.race_record import Candidate, Record
from fm2.training.train import train

RACED = sorted([*ORDINARY, "race.json"])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(planted(1500, values=6), SCHEMA, tmp_path_factory.mktemp("race") / "data")


@pytest.fixture(scope="module")
def raced(dataset, tmp_path_factory):
    """Return a run with effort 2."""
    return train("fmfm", dataset, tmp_path_factory.mktemp("raced") / "run", effort=2, **FAST)


def comparable(path):
    """Return a record without times."""
    values = json.loads((path / "race.json").read_text())
    for candidate in values["candidates"]:
        del candidate["seconds"]
    return values


def test_the_result_is_at_least_as_good_as_with_the_defaults(dataset, raced, tmp_path):
    defaults = train("fmfm", dataset, tmp_path / "defaults", **FAST)
    record = record_of(raced)
    winner, baseline = record.candidates[record.winner], record.candidates[0]
    assert baseline.changes == {}
    assert baseline.scores[-1] == defaults.metrics["log_loss"]
    assert winner.scores[-1] == raced.metrics["log_loss"] < defaults.metrics["log_loss"]
    assert math.isclose(record.gain, defaults.metrics["log_loss"] - raced.metrics["log_loss"])
    assert len(record.candidates) == 6
    assert [sum(candidate.dropped == round for candidate in record.candidates) for round in (1, 2)] == [2, 1]
    dims = ",".join(map(str, winner.changes["dim"]))
    changes = " ".join(f"{name}={dims if name == 'dim' else value}" for name, value in winner.changes.items())
    score = f"{raced.metrics['log_loss']:.4f}, {record.gain:.4f} lower"
    assert record.summary() == f"race: chose {changes}: validation log loss {score} than with the defaults"


def test_the_winner_becomes_an_ordinary_run(dataset, raced, tmp_path):
    record = record_of(raced)
    assert names(raced.path) == RACED
    changes = record.candidates[record.winner].changes
    settings = read_settings(raced.path / SETTINGS)
    assert changes.items() <= settings.items()
    alone = train("fmfm", dataset, tmp_path / "alone", **FAST, **changes)
    compare_runs(alone.path, raced.path)  # its pauses changed nothing
    assert Run.open(raced.path).evaluate(dataset) == alone.evaluate(dataset)
    further = train("fmfm", dataset, tmp_path / "further", start=raced, **FAST)
    assert further.metrics["log_loss"] <= raced.metrics["log_loss"]
    copy = shutil.copytree(raced.path, tmp_path / "copy")
    for path in (alone.path, copy):
        train("fmfm", dataset, path, resume=True, epochs=5)
    compare_runs(alone.path, copy)
    assert names(copy) == RACED


def test_effort_1_writes_nothing_new_and_replaces_a_race(dataset, tmp_path):
    train("lr", dataset, tmp_path / "run", effort=1, **FAST)
    assert names(tmp_path / "run") == ORDINARY
    train("lr", dataset, tmp_path / "run", effort=2, overwrite=True, **FAST)
    assert names(tmp_path / "run") == RACED
    train("lr", dataset, tmp_path / "run", overwrite=True, **FAST)
    assert names(tmp_path / "run") == ORDINARY


@pytest.mark.parametrize("steps", [(1, 3), (21, 22, 23), (60, 127, 160), (240, 330)])
def test_an_interrupted_race_ends_with_the_same_run(dataset, raced, tmp_path, steps):
    out, interrupt = tmp_path / "run", Interrupt(steps)
    for resume in range(len(steps)):
        with pytest.raises(KeyboardInterrupt):
            train("fmfm", dataset, out, effort=2, resume=resume > 0, callback=interrupt, **FAST)
        assert (out / "race").is_dir()
    train("fmfm", dataset, out, resume=True)  # with its own effort and settings
    compare_runs(raced.path, out)
    assert comparable(raced.path) == comparable(out)
    assert names(out) == RACED


def test_a_crash_without_a_checkpoint_changes_nothing(dataset, raced, tmp_path, monkeypatch):
    out = tmp_path / "run"
    for number, step in enumerate((10, 100, 120)):
        with pytest.raises(RuntimeError):
            callback = Interrupt([step], RuntimeError)
            train("fmfm", dataset, out, effort=2, resume=number > 0, callback=callback, **FAST)
    replace = Path.replace

    def crash(self, target):
        if target == out / "checkpoint.safetensors":
            raise OSError("killed while the winner's files are moved")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(OSError, match="killed"):
        train("fmfm", dataset, out, effort=2, resume=True, **FAST)
    monkeypatch.undo()
    assert (out / "race").is_dir()
    train("fmfm", dataset, out, effort=2, resume=True, **FAST)
    compare_runs(raced.path, out)
    assert comparable(raced.path) == comparable(out)
    assert read_settings(out / SETTINGS) == read_settings(raced.path / SETTINGS)
    assert names(out) == RACED


def test_only_the_same_race_is_resumed(dataset, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train("fmfm", dataset, out, effort=2, callback=Interrupt([30]), dim=4, **FAST)
    with pytest.raises(Fm2Error, match="already exists; use resume=True"):
        train("fmfm", dataset, out, effort=2)
    for wrong, message in (
        ({"effort": 3}, "has effort 2, not 3"),
        ({"dim": 8}, "was started with dim 4, and several candidates are being compared; resume it with the same"),
        ({"l2": 0.1}, "was started without l2=, and several candidates are being compared; resume it with the same"),
        ({"row_weights": np.ones(1500)}, "had other row weights"),
    ):
        with pytest.raises(Fm2Error, match=message):
            train("fmfm", dataset, out, resume=True, **wrong)
    for model in ("fm", "auto"):
        with pytest.raises(Fm2Error, match=f"trains fmfm, not {model}"):
            train(model, dataset, out, resume=True)
    train("fmfm", dataset, out, resume=True, threads=2)
    train("lr", dataset, tmp_path / "ordinary", **FAST)
    for model, effort in (("lr", 2), ("auto", 1)):
        with pytest.raises(Fm2Error, match=r"is not a race; .* use overwrite=True"):
            train(model, dataset, tmp_path / "ordinary", effort=effort, resume=True)
    (out / "race.json").write_text("{")
    with pytest.raises(Fm2Error, match=r"race.json is damaged: .*; use overwrite=True"):
        train("fmfm", dataset, out, resume=True)


def test_the_settings_of_the_user_do_not_change(dataset, tmp_path):
    chosen = {"dim": [3, 4, 5, 6], "l2": 0.05, "metric": "auc"}
    run = train("fmfm", dataset, tmp_path / "run", effort=2, **chosen, **FAST)
    record = record_of(run)
    assert len(record.candidates) == 6
    assert not {*chosen, *FAST} & {name for candidate in record.candidates for name in candidate.changes}
    assert {**chosen, **FAST}.items() <= read_settings(run.path / SETTINGS).items()
    scores = [candidate.scores[-1] for candidate in record.candidates if candidate.dropped is None]
    assert run.metrics["auc"] == max(scores)  # a higher AUC is better


def test_a_warm_start_races_what_may_change(dataset, raced, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", start=raced, effort=2, **FAST)
    record = record_of(run)
    assert len(record.candidates) == 6
    assert not any("dim" in candidate.changes for candidate in record.candidates)
    assert run.metrics["log_loss"] <= raced.metrics["log_loss"]
    with pytest.raises(Fm2Error, match="auto cannot start from a trained model; use fmfm instead"):
        train("auto", dataset, tmp_path / "auto", start=raced)
    with pytest.raises(Fm2Error, match="learn=False trains nothing"):
        train("fmfm", dataset, tmp_path / "none", start=raced, learn=False, effort=2)


def test_candidates_that_diverge_lose(dataset, tmp_path):
    run = train("fm", dataset, tmp_path / "run", effort=2, learning_rate_scale=800, **FAST)
    record = record_of(run)
    assert [candidate.failed for candidate in record.candidates].count("diverged") in range(1, 6)
    assert record.candidates[record.winner].failed is None
    with pytest.raises(Fm2Error, match=r"no candidate of the race could be trained \(diverged\)"):
        train("fm", dataset, tmp_path / "none", effort=2, learning_rate_scale=1e6, **FAST)


def test_the_defaults_may_diverge(dataset, tmp_path, monkeypatch):
    run, defaults = TrainingLoop.run, Settings.of("lr", len(dataset.train), dataset.field_sizes)

    def diverge(loop, *arguments):
        if loop.settings.learning_rate == defaults.learning_rate:
            raise DivergedError("train: the loss is nan")
        return run(loop, *arguments)

    monkeypatch.setattr(TrainingLoop, "run", diverge)
    record = record_of(train("lr", dataset, tmp_path / "run", effort=2, **FAST))
    assert record.candidates[0].failed == "diverged"
    assert record.gain is None
    assert record.summary().endswith("; with the defaults, training diverged")


def test_a_race_that_runs_out_of_memory_says_so(dataset, tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(TrainingLoop, "run", fail)
    with pytest.raises(Fm2Error, match=r"could be trained \(ran out of memory\); lower batch_size="):
        train("fm", dataset, tmp_path / "run", effort=2, **FAST)


@pytest.mark.parametrize("effort", [0, 4, -1, 2.5, "2", None, True])
def test_other_efforts_are_refused(dataset, tmp_path, effort):
    with pytest.raises(Fm2Error, match="train: effort must be 1, 2 or 3, got"):
        train("lr", dataset, tmp_path / "run", effort=effort)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", model_names())
def test_every_model_accepts_its_candidates(name):
    defaults = Settings.of(name, 5000, [5, 6, 7, 8])
    candidates = settings_around(defaults, 5000, [9] * 4, (), NUMBER[3])
    assert candidates[0] == {}
    assert len(candidates) >= 7
    assert len({json.dumps(candidate) for candidate in candidates}) == len(candidates)
    assert all(changes.keys() <= defaults.used().keys() for changes in candidates)
    for changes in candidates:
        make_model(Settings.of(name, 5000, [5, 6, 7, 8], **changes), [5, 6, 7, 8])


def test_auto_chooses_the_model(dataset, tmp_path):
    stages = {}
    run = train("auto", dataset, tmp_path / "run", callback=lambda report: stages.setdefault(report.stage), **FAST)
    record = record_of(run)
    assert list(stages)[2] == "ffm, candidate 3 of 5, round 1 of 4"
    assert [candidate.model for candidate in record.candidates] == ["lr", "fm", "ffm", "fwfm", "fmfm"]
    finalists = [candidate for candidate in record.candidates if candidate.dropped is None]
    assert run.metrics["log_loss"] == min(candidate.scores[-1] for candidate in finalists)
    assert len(finalists) == 2
    assert read_settings(run.path / SETTINGS)["model"] == run.model.name
    assert record.summary().startswith(f"race: chose {run.model.name} with the defaults: validation log loss 0.")
    for name in ("auto", run.model.name):
        train(name, dataset, run.path, resume=True)
    with pytest.raises(Fm2Error, match="not poly2"):
        train("poly2", dataset, run.path, resume=True)


def test_auto_with_more_effort_races_the_settings_of_the_two_best_models(dataset, tmp_path):
    settings = {**FAST, "dim": 3}
    run = train("auto", dataset, tmp_path / "whole", effort=2, **settings)
    record = record_of(run)
    models = models_to_race(dataset, settings, effort=2)
    assert "lr" not in models
    assert {"ffm", "fmfm", "deepfm"} < set(models)
    raced = [candidate.model for candidate in record.candidates[len(models) :]]
    best, second = (record.candidates[number].model for number in record.entered[:2])
    assert raced == [best] * 5 + [second] * 5
    baseline = record.candidates[record.entered[0]]
    assert record.gain == baseline.scores[-1] - run.metrics["log_loss"] >= 0
    assert record.summary().startswith(f"race: chose {run.model.name} with ")
    interrupt = Interrupt([100, 300])
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            train("auto", dataset, tmp_path / "parts", effort=2, resume=resume, callback=interrupt, **settings)
    train("auto", dataset, tmp_path / "parts", resume=True)
    compare_runs(tmp_path / "whole", tmp_path / "parts")
    assert comparable(tmp_path / "whole") == comparable(tmp_path / "parts")


def test_auto_says_how_many_models_it_compared():
    candidates = [Candidate("fmfm", scores=[0.51, 0.5, 0.49]), Candidate("deepfm", scores=[0.5, 0.49, 0.48])]
    record = Record("auto", 1, "log_loss", {}, {}, candidates, [0, 1], models=True, winner=1)
    assert record.summary().startswith("race: chose deepfm with the defaults: validation log loss 0.4800")
    assert record.summary().endswith("the best of 2 models")


@pytest.mark.parametrize(
    ("metric", "scores", "expected"),
    [
        ("log_loss", (0.53672, 0.53671), "validation log loss 0.5367, no lower than with the defaults"),
        ("auc", (0.71232, 0.71234), "validation AUC 0.7123, no higher than with the defaults"),
        ("auc", (0.71232, 0.71252), "validation AUC 0.7125, 0.0002 higher than with the defaults"),
    ],
)
def test_a_gain_that_rounds_to_zero_is_called_none(metric, scores, expected):
    candidates = [Candidate("fm", scores=[scores[0]]), Candidate("fm", {"l2": 0.1}, [scores[1]])]
    record = Record("fm", 2, metric, {}, {}, candidates, [0, 1])
    record.decide(1, 0)
    assert record.summary() == f"race: chose l2=0.1: {expected}"


def test_a_device_that_is_not_available_leaves_no_directory(dataset, tmp_path, capsys):
    for model in ("auto", "fm"):
        assert main(["train", model, str(dataset.path), "--out", str(tmp_path / "run"), "--device", "vulkan"]) == 1
        assert "train: device 'vulkan' is not available" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_misspelled_parameters_get_a_suggestion(dataset, tmp_path):
    for name, meant in (("efort", "effort"), ("overwrit", "overwrite"), ("epoch", "epochs")):
        with pytest.raises(Fm2Error, match=f"train: unknown setting '{name}'; did you mean '{meant}'"):
            train("fm", dataset, tmp_path / "run", **{name: 1})


def test_auto_refuses_settings_that_no_model_has(dataset, tmp_path):
    with pytest.raises(Fm2Error, match="unknown setting 'dims'"):
        train("auto", dataset, tmp_path / "run", dims=3)
    assert models_to_race(dataset, {"dim": [2, 3, 4, 5]}, effort=2) == ["fmfm", "dcnv2"]


def test_trackers_see_the_winner_only(dataset, tmp_path):
    events = []

    class Recorder:
        def begin(self, settings, path, history):
            events.append((settings["learning_rate"], path, history))

        def evaluated(self, evaluation):
            events.append(evaluation["log_loss"])

        def end(self, metrics):
            events.append(metrics["log_loss"])

    run = train("lr", dataset, tmp_path / "run", effort=2, trackers=[Recorder()], **FAST)
    rate = read_settings(run.path / SETTINGS)["learning_rate"]
    losses = [json.loads(line)["log_loss"] for line in (run.path / "history.jsonl").read_text().splitlines()]
    assert events == [(rate, run.path, None), *losses, run.metrics["log_loss"]]


def test_the_progress_names_round_and_candidate(dataset, tmp_path):
    stages, shares = {}, []

    def follow(report) -> None:
        stages.setdefault(report.stage)
        shares.append(report.rows / report.total)

    train("lr", dataset, tmp_path / "run", effort=2, callback=follow, **FAST)
    assert max(shares[: len(shares) // 3]) == 1  # the bar is full at the end of a round
    assert max(shares) <= 1
    assert list(stages)[:6] == [f"candidate {number} of 6, round 1 of 4" for number in range(1, 7)]
    # The four epochs end in the third round.
    assert re.fullmatch(r"candidate \d \(no. 3 of 3 left\), round 3 of 4", list(stages)[-1])


def test_the_command_reports_what_it_chose(dataset, tmp_path, capsys):
    options = ["--epochs", "2", "--batch-size", "64", "--threads", "1"]
    out = tmp_path / "run"
    assert main(["train", "lr", str(dataset.path), "--out", str(out), "--effort", "2", *options]) == 0
    printed = capsys.readouterr()
    record = Record.read(out)
    assert f"fm2: {record.summary()}" in printed.err
    assert "lr in" in printed.out
    assert main(["train", "lr", str(dataset.path), "--out", str(out), "--resume", "--epochs", "2"]) == 0
    finished = "fm2: already finished (reached the maximum of 2 epochs); raise --epochs to continue"
    assert finished in capsys.readouterr().err
    (tmp_path / "some.toml").write_text("epochs = 2\nbatch_size = 64\n")
    words = [
        "train",
        "auto",
        str(dataset.path),
        "--out",
        str(tmp_path / "auto"),
        "--settings",
        str(tmp_path / "some.toml"),
    ]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "race: chose" in printed.err
    assert "auto in" not in printed.out
    assert main(["train", "lr", str(dataset.path), "--out", str(out), "--effort", "4"]) == 1
    assert "effort must be 1, 2 or 3, got 4" in capsys.readouterr().err


def test_classifiers_have_an_effort():
    rows = planted(600, values=4)
    x, y = rows.drop("click"), rows["click"].to_numpy()
    settings = {"epochs": 3, "batch_size": 64, "validation_fraction": 0.3}
    first, second = (LRClassifier(effort=effort, **settings).fit(x, y) for effort in (1, 2))
    assert second.run_.metrics["log_loss"] < first.run_.metrics["log_loss"]
    assert second.settings_["learning_rate"] != first.settings_["learning_rate"]
    assert second.get_params()["effort"] == 2
    with pytest.raises(ValueError, match="effort must be 1, 2 or 3, got 5"):
        LRClassifier(effort=5).fit(x, y)


def test_a_race_that_cannot_start_writes_nothing(dataset, tmp_path):
    for model, effort in (("fmfm", 2), ("auto", 1)):
        with pytest.raises(Fm2Error, match=r"got 2 dimensions for|no model that auto tries"):
            train(model, dataset, tmp_path / "run", effort=effort, dim=[4, 8])
        assert not (tmp_path / "run").exists()
