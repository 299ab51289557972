"""fm2 tune: never worse than the defaults, deterministic by seed, and safe against Ctrl-C and kills."""

from __future__ import annotations

import json
import sys

import numpy as np
import polars
import pytest
from tests.helpers.planted import QUICK
from tests.helpers.processes import run_and_kill

import fm2
from fm2 import Fm2Error
from fm2.artifacts.settings import Settings
from fm2.cli.main import main
from fm2.models.registry import model_names
from fm2.studies.tuning.plan import find_plan
from fm2.studies.tuning.search import tune
from fm2.studies.tuning.spaces import SEARCHED, SEARCHED_WITH_FTRL, SEARCHED_WITH_SCHEDULE, Choices, Range, space_around
from fm2.training.train import train

FIX = {"epochs": 2, "evaluations_per_epoch": 2, "patience": 100}
SPACE = {"learning_rate": {"low": 0.0005, "high": 0.05, "log": True}, "batch_size": [32, 64, 256], "l2": [0.0, 0.01]}


def outcomes(tuning):
    return [(trial.number, trial.tried, trial.state, trial.metrics) for trial in tuning.trials]


def search(dataset, out, trials=6, **options):
    return tune("lr", dataset, out, trials=trials, **{"fix": FIX, "space": SPACE, **options})


@pytest.fixture(scope="module")
def searched(dataset, tmp_path_factory):
    """Return a finished search of six trials, for tests that only read it."""
    return search(dataset, tmp_path_factory.mktemp("searched") / "tune")


def test_the_first_trial_is_the_defaults_and_the_best_is_no_worse(dataset, searched, tmp_path):
    run = train("lr", dataset, tmp_path / "run", **FIX, l2=0.0, batch_size=32, learning_rate=0.0125)
    first = searched.trials[0]
    assert first.tried == {
        "learning_rate": 0.0125,
        "batch_size": 32,
        "l2": 0.0,
    }  # for l2, the value nearest to the default
    assert first.metrics == run.metrics
    assert searched.best.value <= first.value
    assert searched.best.value == min(trial.value for trial in searched.trials)


def test_best_toml_reproduces_the_best_trial(dataset, searched, tmp_path, capsys):
    command = ["train", "lr", str(dataset.path), "--out", str(tmp_path / "run"), "--json"]
    assert main([*command, "--settings", str(searched.path / "best.toml")]) == 0
    assert json.loads(capsys.readouterr().out) == searched.best.metrics
    assert fm2.Run.open(searched.path / "best").metrics == searched.best.metrics
    assert fm2.train("lr", dataset, tmp_path / "again", **searched.settings).metrics == searched.best.metrics


def test_only_the_best_run_is_kept(searched):
    names = sorted(entry.name for entry in searched.path.iterdir())
    assert names == ["best", "best.toml", "space.toml", "study.journal", "tune.json"]


def test_the_same_seed_gives_the_same_trials(dataset, searched, tmp_path):
    assert outcomes(search(dataset, tmp_path / "again")) == outcomes(searched)
    other = search(dataset, tmp_path / "other", trials=2, seed=1)
    assert outcomes(other)[1][1] != outcomes(searched)[1][1]


def test_an_interrupted_search_resumes_to_the_same_result(dataset, searched, tmp_path):
    def stop(report):
        if report.rows == 2560:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(dataset, tmp_path / "tune", watch=stop)
    begun = []

    def watch(report):
        begun.append(report.begun)
        if len(begun) == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune("lr", dataset, tmp_path / "tune", trials=6, resume=True, watch=watch)
    assert begun[0] == 2560  # the interrupted training continues
    tuning = tune("lr", dataset, tmp_path / "tune", trials=6, resume=True)
    assert outcomes(tuning) == outcomes(searched)
    assert outcomes(tune("lr", dataset, tmp_path / "tune", trials=3, resume=True)) == outcomes(searched)


def test_a_killed_search_resumes_to_the_same_result(dataset, searched, tmp_path):
    script = f"""
import sys, time
from fm2.studies.tuning.search import tune
def on_trial(trials):
    if len(trials) == 3:
        print("ready to be killed", flush=True); time.sleep(60)
tune("lr", sys.argv[1], sys.argv[2], trials=6, fix={FIX!r}, space={SPACE!r}, on_trial=on_trial)
"""
    run_and_kill(script, dataset.path, tmp_path / "tune")
    journal = tmp_path / "tune" / "study.journal"
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"worker')  # an incomplete line, and a stale lock
    journal.with_name("study.journal.lock").symlink_to(journal)
    best = (tmp_path / "tune" / "best.toml").read_text().split()[2]  # "# trial 2 of 3: ..."
    (tmp_path / "tune" / "trials").mkdir(exist_ok=True)
    (tmp_path / "tune" / "best").rename(tmp_path / "tune" / "trials" / best)  # as after a kill between two steps
    tuning = tune("lr", dataset, tmp_path / "tune", trials=6, resume=True)
    assert outcomes(tuning) == outcomes(searched)
    assert fm2.Run.open(tmp_path / "tune" / "best").metrics == searched.best.metrics


def test_a_search_resumes_only_with_the_same_arguments(dataset, searched, tmp_path):
    def again(**options):
        return tune("lr", dataset, searched.path, trials=6, resume=True, **options)

    assert outcomes(again(fix=FIX, space=SPACE, metric="log_loss", seed=0)) == outcomes(searched)
    for options, message in (
        ({"seed": 3}, "has seed 0, not 3"),
        ({"metric": "auc"}, "has metric log_loss, not auc"),
        ({"fix": {"epochs": 3}}, "has another space; resume without fix= and space="),
    ):
        with pytest.raises(Fm2Error, match=message):
            again(**options)
    with pytest.raises(Fm2Error, match=r"has model lr, not fm"):
        tune("fm", dataset, searched.path, resume=True)
    with pytest.raises(Fm2Error, match=r"already exists; use resume=True to continue it"):
        search(dataset, searched.path)
    with pytest.raises(Fm2Error, match=r"no search to resume in"):
        search(dataset, tmp_path, resume=True)


def test_a_hopeless_trial_is_pruned(dataset, tmp_path):
    useless = [1e-9, 1e-8, 1e-7, 1e-6]
    rates = {"learning_rate": [0.003, 0.004, 0.005, 0.006, 0.007, 0.008, *useless]}
    tuning = tune("lr", dataset, tmp_path / "tune", trials=20, fix={**FIX, "epochs": 4, "batch_size": 64}, space=rates)
    states = {trial.tried["learning_rate"]: trial.state for trial in tuning.trials}
    assert "pruned" in {states.get(rate) for rate in useless}
    assert tuning.best.state == "finished"
    assert tuning.best.tried["learning_rate"] not in useless
    repeated = [trial for trial in tuning.trials if trial.seconds == 0]
    assert len(repeated) == 20 - len(states)  # repeated settings are not trained again


def test_a_failed_training_does_not_stop_the_search(dataset, tmp_path):
    space = {"embedding_std": [0.03, 100.0], "learning_rate": [0.02, 1000.0]}
    tuning = tune("ffm", dataset, tmp_path / "tune", trials=4, fix=FIX, space=space)
    failed = [trial for trial in tuning.trials if trial.state == "failed"]
    assert failed
    assert "the loss is" in failed[0].error
    with pytest.raises(Fm2Error, match="the loss is"):  # the first trial has to work
        tune("ffm", dataset, tmp_path / "bad", fix={**FIX, "learning_rate": 1e6, "embedding_std": 100.0})


def test_auc_is_maximized(dataset, tmp_path):
    tuning = search(dataset, tmp_path / "tune", trials=4, metric="auc")
    assert tuning.best.metrics["auc"] == max(trial.metrics.get("auc", 0) for trial in tuning.trials)
    assert tuning.settings["metric"] == "auc"


def test_a_timeout_stops_a_search_that_can_be_resumed(dataset, tmp_path, capsys):
    command = ["tune", "lr", str(dataset.path), "--out", str(tmp_path / "tune"), "--trials", "2", "--fix", "epochs=1"]
    assert main([*command, "--timeout", "0.000001"]) == 0
    assert capsys.readouterr().out == "no trial finished; continue with --resume\n"
    assert main([*command, "--resume"]) == 0
    assert "2 trials" in capsys.readouterr().out


def test_a_timeout_is_that_of_the_search_not_of_each_trial_of_a_generation(dataset, tmp_path, monkeypatch):
    reports = []
    monkeypatch.setattr("time.time", lambda: float(len(reports)))  # a second per report
    options = {"fix": {**FIX, "batch_size": 64}, "space": {"l2": {"low": 0.001, "high": 0.01}}, "watch": reports.append}
    search(dataset, tmp_path / "one", trials=1, **options)
    seconds = len(reports)
    reports.clear()
    tuning = search(dataset, tmp_path / "many", trials=5, timeout=2.5 * seconds, **options)
    assert len(tuning.trials) == 2
    assert len(reports) <= 2.5 * seconds + 1


def test_the_command_prints_a_line_per_trial_and_a_table_of_the_best(dataset, tmp_path, capsys):
    space = tmp_path / "space.toml"
    space.write_text("l2 = [0.0, 0.01]\nlearning_rate = {low = 0.001, high = 0.05, log = true}\nbatch_size = 64\n")
    out = tmp_path / "tune"
    command = ["tune", "lr", str(dataset.path), "--out", str(out), "--space", str(space), "--fix", "epochs=1"]
    assert main([*command, "--trials", "9"]) == 0
    printed, progress = capsys.readouterr()
    lines = progress.splitlines()
    assert len(lines) == 9
    assert lines[0].startswith("trial 0: log loss 0.")
    assert lines[0].endswith("; baseline for the other trials")
    assert "9 trials" in printed
    assert "importance of the settings: " in printed
    assert f"--settings {out / 'best.toml'}" in printed
    assert main(["tune", "lr", str(dataset.path), "--out", str(out), "--resume", "--trials", "9", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 9
    again = ["tune", "lr", str(dataset.path), "--out", str(tmp_path / "again"), "--trials", "1"]
    assert main([*again, "--space", str(out / "space.toml")]) == 0  # the written space can be passed again


def test_ctrl_c_names_the_way_to_continue(dataset, tmp_path, monkeypatch, capsys):
    command = ["tune", "lr", str(dataset.path), "--out", str(tmp_path / "tune"), "--fix", "epochs=1", "--trials", "2"]

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("fm2.studies.tuning.search._Search._run_generation", interrupt)
    assert main(command) == 130
    assert capsys.readouterr().err == "fm2: interrupted; continue with --resume\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fix": {"dimm": 4}}, r"tune: fix=: unknown setting 'dimm'; did you mean 'dim'\?"),
        ({"fix": {"hash_bits": 4}}, r"tune: fix=: fmfm does not use hash_bits; it applies to poly2"),
        ({"fix": {"seed": 4}}, r"tune: 'seed' is the same for all trials and cannot be searched or fixed"),
        ({"space": {"dim": []}}, r"tune: space: the list of values for dim is empty"),
        ({"space": {"dim": [4, 0]}}, r"tune: space: dim must be an integer between 1 and 1024, got 0"),
        ({"space": {"l2": {"low": 0.0, "high": 1.0, "log": True}}}, r"l2 must have low > 0 for log = true, got 0\.0"),
        ({"space": {"l2": {"low": 2, "high": 1}}}, r"l2 must have low <= high, got 2 and 1"),
        ({"space": {"l2": {"lo": 2}}}, r"expected a range such as .* for l2, got \{'lo': 2\}"),
        ({"space": {"l2": 0.1}}, r"nothing to search for fmfm: all settings are fixed"),
        ({"space": "nowhere.toml"}, r"tune: space: file not found: nowhere.toml"),
        ({"trials": 0}, r"tune: trials must be at least 1, got 0"),
        ({"row_weights": "nowhere.npy"}, r"tune: row weights: file not found: nowhere.npy"),
    ],
)
def test_invalid_arguments_are_errors_before_anything_is_written(dataset, tmp_path, options, message):
    with pytest.raises(Fm2Error, match=message):
        tune("fmfm", dataset, tmp_path / "tune", **options)
    assert not (tmp_path / "tune").exists()


@pytest.mark.parametrize("rows", [0, 1_000_000])
@pytest.mark.parametrize("model", model_names())
def test_every_model_has_a_space_with_its_defaults_inside(model, rows):
    defaults = Settings.of(model, rows)
    space = space_around(defaults)
    assert "learning_rate" in space
    for name, candidates in space.items():
        assert candidates.nearest(defaults.used()[name]) == defaults.used()[name]
        for value in candidates.values if isinstance(candidates, Choices) else (candidates.low, candidates.high):
            Settings.of(model, rows, **{name: value})


def test_every_searched_setting_exists():
    existing = {name for model in model_names() for name in Settings.of(model).used()}
    existing |= set(Settings.of("poly2", optimizer="ftrl").used())
    assert {*SEARCHED, *SEARCHED_WITH_SCHEDULE, *SEARCHED_WITH_FTRL} <= existing


def test_the_space_depends_on_the_optimizer():
    ftrl = space_around(Settings.of("poly2", optimizer="ftrl"))
    assert ftrl["l2"] == Choices((0.0, 10.0, 100.0))
    assert "initial_accumulator" not in ftrl
    assert ftrl["learning_rate"] == Range(0.0125, 0.2, log=True)


def test_a_search_resumes_only_with_the_same_row_weights(dataset, tmp_path):
    rows = sum(len(dataset.split(name)) for name in ("train", "validation", "test"))
    weights = np.where(np.arange(rows) % 2, 1.0, 2.0)
    search(dataset, tmp_path / "tune", trials=1, row_weights=weights)
    for other in (None, np.ones(rows)):
        with pytest.raises(Fm2Error, match="uses other row weights, or none; resume with the same"):
            search(dataset, tmp_path / "tune", trials=2, resume=True, row_weights=other)
    assert len(search(dataset, tmp_path / "tune", trials=1, resume=True, row_weights=weights).trials) == 1


def test_an_older_search_keeps_defaults_that_do_not_depend_on_the_click_rate(tmp_path):
    clicks = (np.arange(2000) % 100 == 0).astype(int)
    rows = polars.DataFrame({"click": clicks, "a": np.arange(2000) % 7, "b": np.arange(2000) % 5})
    data = fm2.prepare(rows, fm2.Schema([fm2.Field("a"), fm2.Field("b")], label="click"), tmp_path / "data")
    tune("ffm", data, tmp_path / "tune", trials=1, fix={"epochs": 1}, space={"learning_rate": [0.1]})
    arguments = dict.fromkeys(("space", "fix", "metric", "seed", "generation", "row_weights"))

    def default_l2() -> float:
        return find_plan(tmp_path / "tune", True, "ffm", data, arguments).settings({}).l2

    new, path = default_l2(), tmp_path / "tune" / "tune.json"
    plan = json.loads(path.read_text())
    assert 0 < plan.pop("click_rate") < 0.02
    path.write_text(json.dumps(plan))
    assert new < 0.2 * default_l2()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": "lr"}', '{"model": "lr", "rows": "x"}'])
def test_a_damaged_plan_is_one_clear_error(dataset, tmp_path, text):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "tune.json").write_text(text)
    with pytest.raises(Fm2Error, match=r"tune: .*tune\.json is damaged or not a search"):
        search(dataset, tmp_path / "tune", resume=True)


def test_a_full_disk_stops_the_search(dataset, tmp_path, monkeypatch):
    search(dataset, tmp_path / "tune", trials=1)

    def refuse(*arguments, **options):
        raise Fm2Error("train: history.jsonl could not be written") from OSError(28, "No space left on device")

    monkeypatch.setattr("fm2.studies.tuning.trial.train", refuse)
    with pytest.raises(Fm2Error, match="could not be written"):
        search(dataset, tmp_path / "tune", trials=2, resume=True)
    monkeypatch.undo()
    assert [trial.state for trial in search(dataset, tmp_path / "tune", trials=2, resume=True).trials] == [
        "finished"
    ] * 2


def test_a_missing_optuna_is_named(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        Fm2Error, match=r"fm2 tune requires the package 'optuna'; install it in a clone of fm2 .* '\.\[tune\]'"
    ):
        tune("lr", dataset, tmp_path / "tune", fix=QUICK)
    assert not (tmp_path / "tune").exists()
