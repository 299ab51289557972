"""Options that do nothing are reported in one line; the command continues."""

from __future__ import annotations

import pytest
from tests.helpers.planted import QUICK

from fm2 import Field, Fm2Error, Fm2Warning, Schema, ablate, compare, cut, prepare, prune, shrink, train, tune
from fm2.cli.main import main

EPOCH = ["--epochs", "1", "--threads", "1"]
ONCE = {**QUICK, "epochs": 1, "threads": 1}
NO_LISTS = "the dataset has no multi-valued fields"
NO_WEIGHTS = "--linear fields has no weights per feature"


def reported(capsys) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "no effect" in line]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--value-dropout", "0.1"], f"train: --value-dropout has no effect: {NO_LISTS}"),
        (["--value-dropout", "0.1", "--effort", "2"], f"train: --value-dropout has no effect: {NO_LISTS}"),
        (["--value-dropout", "0.1", "--workers", "2"], f"train: --value-dropout has no effect: {NO_LISTS}"),
        (["--time-limit", "9"], "train: --time-limit has no effect without --workers"),
        (["--linear", "fields", "--linear-l2-scale", "0.5"], f"train: --linear-l2-scale has no effect: {NO_WEIGHTS}"),
        (["--linear", "fields", "--linear-l2-scale", "1"], ""),  # as the paper's models are trained
        (["--linear", "both", "--linear-l2-scale", "0.5"], ""),
        ([], ""),
    ],
)
def test_training_options(dataset, tmp_path, capfd, options, message):
    assert main(["train", "fm", str(dataset.path), "--out", str(tmp_path / "run"), *EPOCH, *options]) == 0
    assert reported(capfd) == ([f"fm2: {message}"] if message else [])


@pytest.mark.parametrize(("model", "rate"), [("lr", 5), ("lrr", 0.1)])
@pytest.mark.parametrize("effort", [1, 2])
def test_an_error_is_reported_alone(dataset, tmp_path, recwarn, model, rate, effort):
    with pytest.raises(Fm2Error, match="value_dropout" if model == "lr" else "lrr"):
        train(model, dataset, tmp_path / "run", value_dropout=rate, effort=effort, **ONCE)
    assert not recwarn.list


def test_a_comparison_reports_an_option_once(dataset, tmp_path, capsys):
    words = [
        "compare",
        str(dataset.path),
        "--models",
        "lr,fm",
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "table"),
        *EPOCH,
    ]
    assert main([*words, "--value-dropout", "0.1"]) == 0
    assert reported(capsys) == [f"fm2: compare: --value-dropout has no effect: {NO_LISTS}"]
    with pytest.warns(Fm2Warning, match=r'^compare: linear_l2_scale= has no effect: linear="fields"') as shown:
        compare(
            dataset,
            tmp_path / "own",
            ["fm", "fwfm"],
            linear_l2_scale=0.5,
            model_settings={"fm": {"linear": "fields"}},
            **ONCE,
        )
    assert len(shown) == 1


def test_a_search_reports_a_fixed_setting_once(dataset, tmp_path):
    fix = {**ONCE, "value_dropout": 0.1, "linear": "fields"}
    del fix["threads"]
    with pytest.warns(Fm2Warning, match=r"^tune: value_dropout= has no effect") as shown:
        tune("fm", dataset, tmp_path / "search", trials=2, fix=fix, space={"linear_l2_scale": [0.2, 0.5]}, threads=1)
    assert len(shown) == 1


def test_settings_of_an_earlier_run_are_not_reported(dataset, tmp_path, recwarn):
    run = train("fmfm", dataset, tmp_path / "run", linear="fields", **ONCE)
    settings = (run.path / "settings.toml").read_text()
    assert "linear_l2_scale = 1.0" in settings  # 0.2 is the default on larger logs
    (run.path / "settings.toml").write_text(settings.replace("linear_l2_scale = 1.0", "linear_l2_scale = 0.2"))
    shrink(run, dataset, tmp_path / "small", progress=False)
    prune(run, dataset, tmp_path / "pruned", progress=False)
    cut(run, dataset, tmp_path / "cut", rank=2, progress=False)
    ablate(run, dataset, tmp_path / "ablation", fields=["c0"], parts=False)
    train("fmfm", dataset, tmp_path / "run", resume=True, progress=False)
    assert not recwarn.list
    with pytest.warns(Fm2Warning, match=r"^train: value_dropout= has no effect"):
        prune(run, dataset, tmp_path / "again", value_dropout=0.1, progress=False)
    with pytest.warns(Fm2Warning, match=r"^ablate: linear_l2_scale= has no effect") as shown:
        ablate(run, dataset, tmp_path / "other", fields=["c0"], parts=False, linear_l2_scale=0.5)
    assert len(shown) == 1


def test_value_dropout_has_an_effect_on_lists(tmp_path, recwarn):
    import polars

    log = polars.DataFrame({"click": [0, 1] * 50, "tags": ["a|b", "b", "c|a", "a"] * 25})
    dataset = prepare(log, Schema([Field("tags", multivalued=True)], "click"), tmp_path / "data")
    train("lr", dataset, tmp_path / "run", value_dropout=0.1, epochs=1)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("model", "plan", "ignored"),
    [("ffm", "cached", True), ("lr", "direct", True), ("ffm", "auto", False), ("fmfm", "cached", False)],
)
def test_plans_of_models_with_one_plan(dataset, tmp_path, capsys, model, plan, ignored):
    train(model, dataset, tmp_path / "run", **{**QUICK, "epochs": 1})
    assert main(["compile", str(tmp_path / "run"), "--out", str(tmp_path / "model.fm2"), "--plan", plan]) == 0
    assert (
        f"fm2: compile: --plan {plan} has no effect: the model has only one plan, " in capsys.readouterr().err
    ) == ignored
