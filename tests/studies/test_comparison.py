"""Models side by side: one table, which survives failures and interruptions."""

from __future__ import annotations

import csv
import dataclasses
import json

import numpy as np
import pytest
from tests.helpers.planted import QUICK, SCHEMA, planted
from tests.helpers.processes import run_python

import fm2
from fm2 import Fm2Error
from fm2.artifacts.settings import read_settings
from fm2.cli.main import main
from fm2.models.registry import model_names, specs
from fm2.studies.comparison import compare as comparing
from fm2.studies.comparison.printing import lines
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.training.run import Run

FAST = [word for name, value in QUICK.items() for word in (f"--{name.replace('_', '-')}", str(value))]
FAST += ["--threads", "1"]


def stored(out) -> dict:
    return json.loads((out / "compare.json").read_text())


def test_models_are_trained_and_tested_alike(dataset, tmp_path, capsys):
    out = tmp_path / "table"
    command = ["compare", str(dataset.path), "--models", "lr,fmfm,widedeep", "--out", str(out), "--seeds", "2", *FAST]
    assert main([*command, "--dim", "3"]) == 0
    told = capsys.readouterr()
    found = stored(out)
    assert (found["format"], found["version"], found["split"]) == ("fm2 compare", 1, "test")
    assert (found["seeds"], found["truth"]) == ([0, 1], None)
    assert [row["run"] for row in found["rows"]] == ["lr-0", "lr-1", "fmfm-0", "fmfm-1", "widedeep-0", "widedeep-1"]
    for row in found["rows"]:
        run = Run.open(out / row["run"])
        assert run.evaluate(dataset)["auc"] == pytest.approx(row["auc"])
        assert (run.model.n_parameters, run.model.flops()) == (row["parameters"], row["flops"])
        assert 0 < row["best_epoch"] <= 2
        assert row["seconds"] > 0
        assert row["error"] is None
        assert read_settings(out / row["run"] / "settings.toml")["seed"] == row["seed"]
    assert Run.open(out / "fmfm-1").model.config["dims"] == [3] * 4
    with (out / "compare.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == list(COLUMNS)
    assert [float(line["auc"]) for line in lines] == [row["auc"] for row in found["rows"]]

    table = told.out.splitlines()
    losses = [row["log_loss"] for row in found["rows"] if row["model"] == "fmfm"]
    shown = next(line for line in table if line.startswith("fmfm"))
    assert f"{np.mean(losses):.5f} ± {np.std(losses, ddof=1):.5f}" in shown
    assert "mean ± deviation of 2 seeds, on the test rows" in told.out
    unfinished = [row["run"] for row in found["rows"] if row["unfinished"]]
    assert unfinished == [row["run"] for row in found["rows"] if row["best_epoch"] == 2]
    assert f"still getting better when the epochs were over: {', '.join(unfinished)}; --resume" in told.out
    assert "dim is not for lr: trained without it" in told.err
    assert "fmfm-1: AUC" in told.err

    assert main(command) == 1
    assert "is there already; --resume goes on with it, --overwrite replaces it" in capsys.readouterr().err


def test_one_failure_does_not_take_the_others_down(dataset, tmp_path, capsys, monkeypatch):
    train, out = comparing.train, tmp_path / "table"

    def fails(model, *args, **options):
        if model == "fm":
            raise RuntimeError("no memory\nleft")
        return train(model, *args, **options)

    monkeypatch.setattr(comparing, "train", fails)
    command = ["compare", str(dataset.path), "--out", str(out)]
    assert main([*command, "--models", "fm,lr", *FAST]) == 1
    told = capsys.readouterr()
    assert "fm-0 failed: RuntimeError: no memory\\nleft" in told.out
    assert "1 of 2 trainings failed: fm-0" in told.err
    rows = stored(out)["rows"]
    assert [(row["model"], row["error"], row["auc"] is None) for row in rows] == [
        ("fm", "RuntimeError: no memory\\nleft", True),
        ("lr", None, False),
    ]
    monkeypatch.setattr(comparing, "train", train)
    before = (out / "lr-0" / "model.safetensors").stat().st_mtime_ns
    assert main([*command, "--resume", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"][0]["error"] is None
    assert again["rows"][1] == rows[1]
    assert (out / "lr-0" / "model.safetensors").stat().st_mtime_ns == before
    assert read_settings(out / "fm-0" / "settings.toml")["epochs"] == QUICK["epochs"]  # as it was asked for at first


def test_an_interrupted_comparison_ends_where_it_would_have_ended(dataset, tmp_path):
    whole = fm2.compare(dataset, tmp_path / "whole", "lr,fmfm", **QUICK)
    seen = []

    def interrupt(report):
        seen.append(report)
        if len(seen) == 70:  # while the second model is trained
            raise KeyboardInterrupt

    out = tmp_path / "table"
    with pytest.raises(KeyboardInterrupt):
        fm2.compare(dataset, out, "lr,fmfm", watch=interrupt, **{**QUICK, "epochs": 1})
    assert [row["run"] for row in stored(out)["rows"]] == ["lr-0"]
    spent = stored(out)["spent"]["fmfm-0"]
    begun = []
    done = fm2.compare(dataset, out, resume=True, begin=begun.append, epochs=2)
    assert begun == ["lr-0", "fmfm-0"]  # more epochs are more to do for both
    for one, other in zip(done.rows, whole.rows, strict=True):
        assert (one["auc"], one["log_loss"], one["best_epoch"]) == (
            other["auc"],
            other["log_loss"],
            other["best_epoch"],
        )
    assert done.rows[1]["seconds"] > spent
    fm2.compare(dataset, out, resume=True, begin=begun.append)
    assert begun == ["lr-0", "fmfm-0"]
    more = fm2.compare(dataset, out, "fwfm", resume=True, begin=begun.append)
    assert begun[2:] == ["fwfm-0"]
    assert [row["model"] for row in more.rows] == ["lr", "fmfm", "fwfm"]
    with pytest.raises(Fm2Error, match="lr-0 has batch_size 64, not 32; --overwrite begins all of them anew"):
        fm2.compare(dataset, out, resume=True, batch_size=32)
    other = fm2.prepare(planted(500), dataset.schema, tmp_path / "other")
    with pytest.raises(Fm2Error, match="compares on another data set"):
        fm2.compare(other, out, resume=True)
    anew = fm2.compare(dataset, out, "lr", overwrite=True, **{**QUICK, "epochs": 1})
    assert [row["run"] for row in anew.rows] == ["lr-0"]
    assert not (out / "fmfm-0").exists()


def test_the_best_possible_and_the_share_of_the_gap(dataset, tmp_path, capsys):
    clicks = np.zeros(4000)
    for split in (dataset.train, dataset.validation, dataset.test):
        clicks[split.rows] = split.labels
    np.save(tmp_path / "truth.npy", 0.1 + 0.8 * clicks)  # as if nine of ten rows were what is most probable
    out = tmp_path / "table"
    command = ["compare", str(dataset.path), "--models", "lr,fmfm", "--out", str(out), *FAST]
    assert main([*command, "--truth", str(tmp_path / "truth.npy")]) == 0
    found = stored(out)
    assert found["truth"] == {"auc": 1.0, "log_loss": pytest.approx(-np.log(0.9))}
    linear, fmfm = (row["log_loss"] for row in found["rows"])
    share = (linear - fmfm) / (linear + np.log(0.9))
    assert [row["gap"] for row in found["rows"]] == [0.0, pytest.approx(share)]
    shown = capsys.readouterr().out
    assert f"{share:.1%}" in shown
    assert "the best possible" in shown
    for wrong, message in (
        (np.full(4000, 2.0), "the probabilities go from 2.0 to 2.0"),
        (np.ones(3), "there are 3 true"),
    ):
        with pytest.raises(Fm2Error, match=message):
            fm2.compare(dataset, tmp_path / "none", "lr", truth=wrong)
    assert not (tmp_path / "none").exists()


def test_settings_of_files(dataset, tmp_path, write):
    both = write("both.toml", "epochs = 1\nbatch_size = 64\ndim = 2\n\n[fmfm]\ndim = [1, 2, 3, 4]\nbatch_size = 32\n")
    tuned = write("tuned.toml", 'model = "fwfm"\nlearning_rate = 0.5\n')
    out = tmp_path / "table"
    options = ["--settings", str(both), str(tuned), "--batch-size", "128", "--threads", "1"]
    assert main(["compare", str(dataset.path), "--models", "fm,fwfm,fmfm", "--out", str(out), *options]) == 0
    used = {name: read_settings(out / f"{name}-0" / "settings.toml") for name in ("fm", "fwfm", "fmfm")}
    assert [used[name]["dim"] for name in used] == [2, 2, [1, 2, 3, 4]]
    assert {used[name]["batch_size"] for name in used} == {128}
    assert used["fwfm"]["learning_rate"] == 0.5
    assert used["fm"]["learning_rate"] != 0.5


def test_what_was_not_pruned_to_the_end_is_named(dataset, tmp_path):
    found = fm2.compare(
        dataset, tmp_path / "table", "deeplight,lr", epochs=1, threads=1, own={"deeplight": {"warm_up": 10**6}}
    )
    told = "\n".join(lines(found))
    assert "not yet as sparse as asked to become when the epochs were over: deeplight-0; --resume" in told
    assert [row["run"] for row in found.rows if row["unsettled"]] == ["deeplight-0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "lr,fmfn"}, "unknown model 'fmfn'; did you mean 'fmfm'"),
        ({"models": []}, "models is empty"),
        ({"models": "lr", "dim": 4}, "dim is for fm, ffm"),
        ({"models": "lr,fm", "dim": [4, 8]}, "dim per field is for fmfm, .*; none of them is compared"),
        ({"models": "lr,deepfm", "cin": [20, 20]}, "compare: cin is for xdeepfm; none of them is compared"),
        ({"models": "lr", "epoch": 4}, "compare: lr: unknown setting 'epoch'; did you mean 'epochs'"),
        ({"models": "lr,fm", "own": {"lr": {"dim": 4}}}, "compare: lr: .*does not use dim; it applies to"),
        ({"models": "lr", "own": {"xyz": {}}}, "compare: unknown model 'xyz'"),
        ({"models": "lr", "seed": 4}, "--seeds says how many"),
        ({"models": "lr", "seeds": 0}, "seeds is 0; it is how many"),
        ({"models": "lr", "seeds": [1, 1]}, r"seeds is \[1, 1\]"),
        ({"models": "lr", "resume": True}, "there is no comparison to resume"),
        ({"models": "lr", "resume": True, "overwrite": True}, "choose one of them"),
    ],
)
def test_what_cannot_be_compared_is_told_before_any_work(dataset, tmp_path, options, message):
    with pytest.raises(Fm2Error, match=message):
        fm2.compare(dataset, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_other_directories_and_damaged_tables_are_left_alone(dataset, tmp_path, write):
    write("mine.txt", "mine")
    for options in ({}, {"overwrite": True}):
        with pytest.raises(Fm2Error, match=r"holds something else \(it has no compare.json\); give another --out"):
            fm2.compare(dataset, tmp_path, "lr", **options)
    with pytest.raises(Fm2Error, match="holds no comparison"):
        Comparison.open(tmp_path)
    for text in ("{", "[]", '{"format": "fm2 compare"}', '{"format": "fm2 compare", "version": 1, "nonsense": 1}'):
        write("compare.json", text)
        with pytest.raises(Fm2Error, match=r"compare.json is damaged, or not a file of fm2's"):
            Comparison.open(tmp_path)
    write("compare.json", '{"format": "fm2 compare", "version": 2, "more": 1}')
    with pytest.raises(Fm2Error, match=r"has the format \('fm2 compare', 2\); this fm2 reads \('fm2 compare', 1\)"):
        Comparison.open(tmp_path)


def test_a_table_with_nonsense_in_a_row_is_damaged(tmp_path):
    row = {**dict.fromkeys(COLUMNS), "model": "lr", "seed": 0, "run": "lr-0", "parameters": 9, "flops": 8}
    row |= {"auc": 0.7, "log_loss": 0.5, "seconds": 1.5}
    whole = Comparison(tmp_path, "data", "f", "test", ["lr"], [0], rows=[row])
    whole.save()
    assert Comparison.open(tmp_path) == whole
    failed = {**dict.fromkeys(COLUMNS), "model": "fm", "seed": 0, "run": "fm-0", "error": "no memory"}
    dataclasses.replace(whole, rows=[row, failed]).save()
    assert Comparison.open(tmp_path).failed == [failed]
    for wrong in ({"auc": "0.7"}, {"auc": None}, {"auc": float("nan")}, {"flops": 0}, {"run": 5}, {"error": 5}):
        dataclasses.replace(whole, rows=[row]).save()
        text = json.loads((tmp_path / "compare.json").read_text())
        text["rows"][0] |= wrong
        (tmp_path / "compare.json").write_text(json.dumps(text))
        with pytest.raises(Fm2Error, match="is damaged"):
            Comparison.open(tmp_path)


def test_rows_that_cannot_be_measured_are_told_before_any_work(tmp_path):
    rows = planted(300)
    tested = rows.with_columns(click=True).head(50)
    data = fm2.prepare(rows, SCHEMA, tmp_path / "data", test=tested)
    with pytest.raises(Fm2Error, match=r"compare: all rows of .* for test have the label 1"):
        fm2.compare(data, tmp_path / "none", "lr")
    assert not (tmp_path / "none").exists()


def test_what_is_given_to_resume_comes_before_what_a_file_said(dataset, tmp_path):
    once = {**QUICK, "epochs": 1}
    first = fm2.compare(dataset, tmp_path / "table", "lr,fm", own={"fm": {"epochs": 1, "dim": 2}}, **once)
    more = fm2.compare(dataset, tmp_path / "table", resume=True, epochs=2)
    assert [read_settings(tmp_path / "table" / run / "settings.toml")["epochs"] for run in ("lr-0", "fm-0")] == [2, 2]
    assert more.own == {"fm": {"dim": 2}}
    assert all(after["seconds"] > before["seconds"] for before, after in zip(first.rows, more.rows, strict=True))


def test_the_models_there_are(capsys, monkeypatch):
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == model_names()
    assert {entry["name"]: entry["summary"] for entry in listed} == {spec.name: spec.summary for spec in specs()}
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert [line.split()[0] for line in lines if line[:1].isalpha()][1 : 1 + len(specs())] == model_names()
    done = run_python("import sys, fm2.cli.main; fm2.cli.main.main(['models']); print('torch' in sys.modules)")
    assert done.stdout.splitlines()[-1] == "False", done.stderr
