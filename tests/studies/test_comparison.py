"""fm2 compare: one table of models, which survives failures and interruptions."""

from __future__ import annotations

import csv
import dataclasses
import json

import numpy as np
import pytest
from tests.helpers.planted import QUICK, SCHEMA, planted
from tests.helpers.processes import run_python
from tests.helpers.runs import compare_runs

import fm2
from fm2 import Fm2Error
from fm2.artifacts.settings import read_settings
from fm2.cli.main import main
from fm2.cli.studies import read_settings_files
from fm2.models.registry import model_names, specs
from fm2.studies.comparison import runs as comparing
from fm2.studies.comparison.printing import lines
from fm2.studies.comparison.results import COLUMNS, INTERVALS, Comparison
from fm2.training.run import Run

FAST = [text for name, value in QUICK.items() for text in (f"--{name.replace('_', '-')}", str(value))]
FAST += ["--threads", "1"]


def stored(out) -> dict:
    return json.loads((out / "compare.json").read_text())


def test_models_are_trained_and_evaluated_under_the_same_conditions(dataset, tmp_path, capsys):
    out = tmp_path / "table"
    command = ["compare", str(dataset.path), "--models", "lr,fmfm,widedeep", "--out", str(out), "--seeds", "2", *FAST]
    assert main([*command, "--dim", "3"]) == 0
    printed = capsys.readouterr()
    results = stored(out)
    assert (results["format"], results["version"], results["split"]) == ("fm2 compare", 1, "test")
    assert (results["seeds"], results["truth"]) == ([0, 1], None)
    assert [row["run"] for row in results["rows"]] == ["lr-0", "lr-1", "fmfm-0", "fmfm-1", "widedeep-0", "widedeep-1"]
    for row in results["rows"]:
        run = Run.open(out / row["run"])
        assert run.evaluate(dataset)["auc"] == pytest.approx(row["auc"])
        assert (run.model.n_parameters, run.model.flops()) == (row["parameters"], row["flops"])
        assert 0 < row["best_epoch"] <= 2
        assert row["seconds"] > 0
        assert row["error"] is None
        assert read_settings(out / row["run"] / "settings.toml")["seed"] == row["seed"]
    assert Run.open(out / "fmfm-1").model.config["dims"] == [3] * 4
    with (out / "compare.csv").open() as file:
        csv_rows = list(csv.DictReader(file))
    assert list(csv_rows[0]) == [*COLUMNS, *INTERVALS]
    assert [float(row["auc"]) for row in csv_rows] == [row["auc"] for row in results["rows"]]

    losses = [row["log_loss"] for row in results["rows"] if row["model"] == "fmfm"]
    line = next(line for line in printed.out.splitlines() if line.startswith("fmfm"))
    assert f"{np.mean(losses):.5f} ± {np.std(losses, ddof=1):.5f}" in line
    assert "mean ± standard deviation of 2 seeds, test split of" in printed.out
    unfinished = [row["run"] for row in results["rows"] if row["unfinished"]]
    assert unfinished == [row["run"] for row in results["rows"] if row["best_epoch"] == 2]
    improving = f"validation score was still improving at the last epoch of {', '.join(unfinished)}"
    assert f"{improving}; continue with --resume" in printed.out
    assert "dim does not apply to lr; ignored there" in printed.err
    assert "fmfm-1: AUC" in printed.err

    assert main(command) == 1
    assert "already exists; use --resume to continue it or --overwrite to replace it" in capsys.readouterr().err


def test_a_failed_training_does_not_stop_the_others(dataset, tmp_path, capsys, monkeypatch):
    train, out = comparing.train, tmp_path / "table"

    def failing_train(model, *args, **options):
        if model == "fm":
            raise RuntimeError("no memory\nleft")
        return train(model, *args, **options)

    monkeypatch.setattr(comparing, "train", failing_train)
    command = ["compare", str(dataset.path), "--out", str(out)]
    assert main([*command, "--models", "fm,lr", *FAST]) == 1
    printed = capsys.readouterr()
    assert "fm-0 failed: RuntimeError: no memory\\nleft" in printed.out
    assert "1 of 2 runs failed: fm-0" in printed.err
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
    assert read_settings(out / "fm-0" / "settings.toml")["epochs"] == QUICK["epochs"]  # from the first call


def test_a_resumed_comparison_equals_an_uninterrupted_one(dataset, tmp_path):
    uninterrupted = fm2.compare(dataset, tmp_path / "uninterrupted", "lr,fmfm", **QUICK)
    reports = []

    def interrupt(report):
        reports.append(report)
        if len(reports) == 70:  # during the second training
            raise KeyboardInterrupt

    out = tmp_path / "table"
    with pytest.raises(KeyboardInterrupt):
        fm2.compare(dataset, out, "lr,fmfm", watch=interrupt, **{**QUICK, "epochs": 1})
    assert [row["run"] for row in stored(out)["rows"]] == ["lr-0"]
    spent = stored(out)["spent"]["fmfm-0"]
    started = []
    resumed = fm2.compare(dataset, out, resume=True, on_start=started.append, epochs=2)
    assert started == ["lr-0", "fmfm-0"]  # both have to train for another epoch
    for row, expected in zip(resumed.rows, uninterrupted.rows, strict=True):
        for name in ("auc", "log_loss", "best_epoch"):
            assert row[name] == expected[name]
    assert resumed.rows[1]["seconds"] > spent
    fm2.compare(dataset, out, resume=True, on_start=started.append)
    assert started == ["lr-0", "fmfm-0"]
    more = fm2.compare(dataset, out, "fwfm", resume=True, on_start=started.append)
    assert started[2:] == ["fwfm-0"]
    assert [row["model"] for row in more.rows] == ["lr", "fmfm", "fwfm"]
    with pytest.raises(Fm2Error, match="lr-0 has batch_size 64, not 32; use overwrite=True to train all models again"):
        fm2.compare(dataset, out, resume=True, batch_size=32)
    other = fm2.prepare(planted(500), dataset.schema, tmp_path / "other")
    with pytest.raises(Fm2Error, match="uses another dataset"):
        fm2.compare(other, out, resume=True)
    replaced = fm2.compare(dataset, out, "lr", overwrite=True, **{**QUICK, "epochs": 1})
    assert [row["run"] for row in replaced.rows] == ["lr-0"]
    assert not (out / "fmfm-0").exists()


def test_a_comparison_and_a_training_make_the_same_model(dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fm2.training.candidates.FEWEST_ROWS", 1000)  # several variants
    out = tmp_path / "table"
    command = ["compare", str(dataset.path), "--models", "lr,ffm,fmfm", "--out", str(out), *FAST]
    with pytest.raises(KeyboardInterrupt):
        watch = interrupt_in("candidate 2 of 4, round 1")
        fm2.compare(dataset, out, ["lr", "ffm", "fmfm"], threads=1, **QUICK, watch=watch)
    with pytest.raises(Fm2Error, match="lr-0 has epochs 2, not 3; use overwrite=True"):
        fm2.compare(dataset, out, resume=True, epochs=3)  # a race that has not ended
    assert main([*command, "--resume"]) == 0
    shown = capsys.readouterr().out
    assert "\nthe best of several variants on the validation rows, as in fm2 train: lr-0, fmfm-0\n" in shown
    for model in ("lr", "ffm", "fmfm"):
        run = fm2.train(model, dataset, tmp_path / model, threads=1, **QUICK)
        compare_runs(run.path, out / f"{model}-0")
    before = stored(out)["rows"]
    assert main([*command, "--resume"]) == 0
    assert stored(out)["rows"] == before  # nothing was trained again
    with pytest.raises(Fm2Error, match=r"fmfm-0 has l2 \S+, not 0.5; use overwrite=True"):
        fm2.compare(dataset, out, resume=True, model_settings={"fmfm": {"l2": 0.5}})
    fm2.compare(dataset, tmp_path / "once", ["lr"], l2=0.01, threads=1, **QUICK)
    assert not (tmp_path / "once" / "lr-0" / "race.json").exists()


def interrupt_in(stage):
    def watch(report):
        if report.stage.startswith(stage):
            raise KeyboardInterrupt

    return watch


def test_the_best_possible_metrics_and_the_gap_to_them(dataset, tmp_path, capsys):
    clicks = np.zeros(4000)
    for split in (dataset.train, dataset.validation, dataset.test):
        clicks[split.rows] = split.labels
    np.save(tmp_path / "truth.npy", 0.1 + 0.8 * clicks)  # every row has its more probable label
    out = tmp_path / "table"
    command = ["compare", str(dataset.path), "--models", "lr,fmfm", "--out", str(out), *FAST]
    assert main([*command, "--truth", str(tmp_path / "truth.npy")]) == 0
    results = stored(out)
    assert results["truth"] == {"auc": 1.0, "log_loss": pytest.approx(-np.log(0.9))}
    linear, fmfm = (row["log_loss"] for row in results["rows"])
    share = (linear - fmfm) / (linear + np.log(0.9))
    assert [row["gap"] for row in results["rows"]] == [0.0, pytest.approx(share)]
    printed = capsys.readouterr().out
    assert f"{share:.1%}" in printed
    assert "best possible" in printed
    for invalid, message in (
        (np.full(4000, 2.0), "probabilities must be between 0 and 1, got 2.0 to 2.0"),
        (np.ones(3), "true probabilities: expected .* got 3"),
    ):
        with pytest.raises(Fm2Error, match=message):
            fm2.compare(dataset, tmp_path / "none", "lr", truth=invalid)
    assert not (tmp_path / "none").exists()


def test_settings_from_files(dataset, tmp_path, write):
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


def test_a_settings_file_of_one_model_may_have_a_table_of_it(write):
    file = write("tuned.toml", 'model = "fm"\nepochs = 3\ndim = 2\n\n[fm]\ndim = 4\n\n[fmfm]\ndim = 8\n')
    assert read_settings_files("compare", [file]) == ({}, {"fm": {"epochs": 3, "dim": 4}, "fmfm": {"dim": 8}})
    with pytest.raises(Fm2Error, match=r"compare: .*list\.toml: unknown model '\['fm'\]'"):
        read_settings_files("compare", [write("list.toml", 'model = ["fm"]\n')])


def test_runs_that_were_not_fully_pruned_are_named(dataset, tmp_path):
    never_pruned = {"deeplight": {"warm_up": 10**6}}
    comparison = fm2.compare(
        dataset, tmp_path / "table", "deeplight,lr", epochs=1, threads=1, model_settings=never_pruned
    )
    printed = "\n".join(lines(comparison))
    assert "the target sparsity was not reached at the last epoch of deeplight-0; continue with --resume" in printed
    assert [row["run"] for row in comparison.rows if row["unsettled"]] == ["deeplight-0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "lr,fmfn"}, "unknown model 'fmfn'; did you mean 'fmfm'"),
        ({"models": []}, "models is empty"),
        (
            {"models": "lr", "dim": 4},
            "compare: no compared model has the setting 'dim'; models with it: fm, .*ffm",
        ),
        (
            {"models": "lr,fm", "dim": [4, 8]},
            "no compared model has the setting 'dim per field'; models with it: fmfm, ",
        ),
        (
            {"models": "lr,deepfm", "cin": [20, 20]},
            "no compared model has the setting 'cin'; models with it: xdeepfm$",
        ),
        ({"models": "lr", "epoch": 4}, "compare: lr: unknown setting 'epoch'; did you mean 'epochs'"),
        ({"models": "lr,fm", "model_settings": {"lr": {"dim": 4}}}, "compare: lr: .*does not use dim; it applies to"),
        ({"models": "lr", "model_settings": {"xyz": {}}}, "compare: settings: unknown model 'xyz'"),
        ({"models": "lr", "seed": 4}, "unexpected setting 'seed'; use seeds=, which apply to all models"),
        ({"models": "lr", "seeds": 0}, "seeds must be a positive number of seeds, .* got 0"),
        ({"models": "lr", "seeds": [1, 1]}, r"seeds must be .* got \[1, 1\]"),
        ({"models": "lr", "resume": True}, "compare: no comparison to resume in"),
        ({"models": "lr", "resume": True, "overwrite": True}, "use only one of them"),
    ],
)
def test_invalid_arguments_are_errors_before_any_work(dataset, tmp_path, options, message):
    with pytest.raises(Fm2Error, match=message):
        fm2.compare(dataset, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_other_directories_and_damaged_files_are_left_alone(dataset, tmp_path, write):
    write("mine.txt", "mine")
    for options in ({}, {"overwrite": True}):
        with pytest.raises(Fm2Error, match=r"is not a comparison \(no compare.json\); choose another out="):
            fm2.compare(dataset, tmp_path, "lr", **options)
    with pytest.raises(Fm2Error, match="is not a comparison"):
        Comparison.open(tmp_path)
    for text in ("{", "[]", '{"format": "fm2 compare"}', '{"format": "fm2 compare", "version": 1, "nonsense": 1}'):
        write("compare.json", text)
        with pytest.raises(Fm2Error, match=r"compare.json is damaged or not a comparison"):
            Comparison.open(tmp_path)
    write("compare.json", '{"format": "fm2 compare", "version": 2, "more": 1}')
    with pytest.raises(Fm2Error, match=r"expected format \('fm2 compare', 1\), got \('fm2 compare', 2\)"):
        Comparison.open(tmp_path)


def test_invalid_values_in_a_row_are_errors(tmp_path):
    row = {**dict.fromkeys(COLUMNS), "model": "lr", "seed": 0, "run": "lr-0", "parameters": 9, "flops": 8}
    row |= {"auc": 0.7, "log_loss": 0.5, "seconds": 1.5}
    comparison = Comparison(tmp_path, "data", "f", "test", ["lr"], [0], rows=[row])
    comparison.save()
    assert Comparison.open(tmp_path) == comparison
    failed = {**dict.fromkeys(COLUMNS), "model": "fm", "seed": 0, "run": "fm-0", "error": "no memory"}
    dataclasses.replace(comparison, rows=[row, failed]).save()
    assert Comparison.open(tmp_path).failed == [failed]
    for invalid in ({"auc": "0.7"}, {"auc": None}, {"auc": float("nan")}, {"flops": 0}, {"run": 5}, {"error": 5}):
        dataclasses.replace(comparison, rows=[row]).save()
        values = json.loads((tmp_path / "compare.json").read_text())
        values["rows"][0] |= invalid
        (tmp_path / "compare.json").write_text(json.dumps(values))
        with pytest.raises(Fm2Error, match="is damaged"):
            Comparison.open(tmp_path)


def test_a_split_with_one_label_is_an_error_before_any_work(tmp_path):
    rows = planted(300)
    test = rows.with_columns(click=True).head(50)
    data = fm2.prepare(rows, SCHEMA, tmp_path / "data", test=test)
    with pytest.raises(Fm2Error, match=r"compare: all rows of .* for test have the label 1"):
        fm2.compare(data, tmp_path / "none", "lr")
    assert not (tmp_path / "none").exists()


def test_arguments_of_a_resumed_comparison_override_earlier_settings(dataset, tmp_path):
    one_epoch = {**QUICK, "epochs": 1}
    own = {"fm": {"epochs": 1, "dim": 2}}
    first = fm2.compare(dataset, tmp_path / "table", "lr,fm", model_settings=own, **one_epoch)
    more = fm2.compare(dataset, tmp_path / "table", resume=True, epochs=2)
    assert [read_settings(tmp_path / "table" / run / "settings.toml")["epochs"] for run in ("lr-0", "fm-0")] == [2, 2]
    assert more.model_settings == {"fm": {"dim": 2}}
    assert all(after["seconds"] > before["seconds"] for before, after in zip(first.rows, more.rows, strict=True))


def test_the_list_of_models(capsys, monkeypatch):
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
