"""What every command says of itself, and what is said of words that there are not."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from fm2.cli.exit_codes import EXIT_CODES
from fm2.cli.main import COMMANDS, main, make_parser
from fm2.models.registry import model_names


def every_command() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


COMMAND_NAMES = list(every_command())


@pytest.mark.parametrize("words", [[], *([name] for name in COMMAND_NAMES)], ids=["fm2", *COMMAND_NAMES])
def test_help_fits_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80, line


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_every_command_and_every_option_is_explained(name):
    command = every_command()[name]
    assert command.description.endswith(".")
    for action in command._actions:
        assert action.help, (name, action.option_strings or action.dest)
        assert not action.help.startswith("default:"), f"{action.option_strings} says its default and not what it is"
    groups = [group for group in command._action_groups if group._group_actions]
    assert all(len(group._group_actions) < 40 for group in groups), "so many options need groups"


def test_the_story_is_told_in_order_with_examples_and_exit_codes(capsys):
    assert main([]) == 2
    shown = capsys.readouterr().err
    places = [shown.index(f"\n  {name} ") for name in COMMAND_NAMES]
    assert places == sorted(places)
    assert len(COMMAND_NAMES) == sum(map(len, COMMANDS.values()))
    assert shown.count("\n  fm2 ") >= 2
    for code, meaning in EXIT_CODES.items():
        assert f"\n  {code:<5}{meaning}" in shown


def test_the_many_options_of_train_are_in_groups(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: fm2 train MODEL DATA --out RUN [options]\n")
    for title, option in [
        ("the model", "--dim"),
        ("learning", "--learning-rate"),
        ("holding back (regularization)", "--l2"),
        ("evaluating and stopping", "--patience"),
        ("options of most networks", "--hidden"),
        ("options of some networks", "--cross-layers"),
    ]:
        group = shown.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert f"  {option} " in group


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("trian", "fm2: there is no command 'trian'; did you mean 'train'?"),
        ("--verison", "fm2: there is no option '--verison'; did you mean '--version'?"),
        ("train fmfn data --out run", "fm2: train: there is no model 'fmfn'; did you mean 'fmfm'?"),
        (
            "train --lerning-rate 0.1 fmfm data --out run",
            "fm2: train: there is no option '--lerning-rate'; did you mean '--learning-rate'?",
        ),
        (
            "train fmfm data --out run --lerning-rate=0.1",
            "fm2: train: there is no option '--lerning-rate'; did you mean '--learning-rate'?",
        ),
        ("train fmfm data --out run --optimizer adm", "fm2: train: --optimizer is 'adm'; did you mean 'adam'?"),
        ("evaluate run data --split tset", "fm2: evaluate: --split is 'tset'; did you mean 'test'?"),
        ("describe data more", "fm2: describe: there is no use for 'more'; see fm2 describe --help"),
        ("describe", "fm2: describe: the following arguments are required: DIR; see fm2 describe --help"),
        ("describe data -x", "fm2: describe: there is no option '-x'; see fm2 describe --help"),
        ("train fmfm data --out run --epoch 3", "fm2: train: there is no option '--epoch'; did you mean '--epochs'?"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest_in_one_line(typed, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(typed.split())
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_every_command_suggests_its_own_options(name, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([name, "--debgu"])
    assert capsys.readouterr().err == f"fm2: {name}: there is no option '--debgu'; did you mean '--debug'?\n"


def test_a_model_that_is_like_no_other_is_answered_with_all(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "transformer", "data", "--out", "run"])
    assert f"there are {', '.join(model_names())}" in capsys.readouterr().err


def test_what_follows_two_dashes_is_no_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["describe", "--", "--data"]) == 1
    assert "--data is not a prepared data set" in capsys.readouterr().err


REFUSED = (
    ["--help"],
    ["train", "--help"],
    ["train", "fmfn", "data", "--out", "run"],
    ["train", "fmfm", "no-data", "--out", "run"],
    ["evaluate", "no-run", "no-data"],
    ["predict", "no-run", "no-rows", "--out", "p.txt"],
    ["shrink", "no-run", "no-data", "--out", "small"],
    ["prune", "no-run", "no-data", "--out", "small"],
    ["cut", "no-run", "no-data", "--out", "small"],
    ["compile", "no-run", "--out", "model.fm2"],
    ["export", "no-run", "--out", "model.onnx"],
    ["rank", "no-model", "{}", "no-candidates"],
    ["inspect", "no-run"],
    ["compare", "no-data", "--out", "table"],
    ["reproduce", "criteo", "no-log", "--out", "tables"],
)


def test_help_and_refusals_do_not_wait_for_torch(tmp_path, dataset):
    code = f"""
import sys
from fm2.cli.main import main
for words in {REFUSED!r}:
    try:
        assert main(words) == 1, words
    except SystemExit:
        pass
assert main(["train", "lr", {str(dataset.path)!r}, "--out", {str(tmp_path / "log.csv")!r}]) == 1
assert main(["train", "lr", {str(dataset.path)!r}, "--out", "run", "--from", "no-run"]) == 1
assert main(["train", "lr", {str(dataset.path)!r}, "--out", "run", "--resume"]) == 1
assert main(["train", "lr", {str(dataset.path)!r}, "--out", "run", "--row-weights", "no-file"]) == 1
assert main(["train", "lr", {str(dataset.path)!r}, "--out", "run", "--dim", "8"]) == 1
print({{"torch"}} & set(sys.modules))
"""
    (tmp_path / "log.csv").write_text("click\n1\n")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv"]
