"""Help pages, suggestions for typing errors, and what the command line imports."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fm2.cli
from fm2.artifacts.settings import Settings
from fm2.cli.command import Argument
from fm2.cli.exit_codes import EXIT_CODES
from fm2.cli.help import command_help
from fm2.cli.main import COMMANDS, GROUPS, Parser, main
from fm2.cli.model_options import training_options
from fm2.models.registry import model_names


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=["fm2", *COMMANDS])
def test_help_fits_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    try:
        assert main([*words, "--help"]) == 0
    except SystemExit as end:
        assert end.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: fm2 {words[0] if words else 'COMMAND'} ")
    for line in lines:
        assert len(line) <= 80, line


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_and_every_argument_is_documented(command):
    assert command.description.endswith(".")
    assert not command.summary.endswith(".")
    groups: dict[str, int] = {}
    for argument in command.arguments():
        assert argument.help, (command.name, argument.name)
        assert not argument.help.startswith(("default:", "(default:")), f"{argument.name}: only the default, no help"
        groups[argument.group] = groups.get(argument.group, 0) + 1
    assert max(groups.values(), default=0) < 40, "this many options need groups"
    page = command_help(command)
    assert all(
        f"  {argument.names[0] if argument.is_option else argument.usage}" in page for argument in command.arguments()
    )


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_has_an_example_that_parses(command):
    assert f"\nExample:\n  {command.example}\n" in command_help(command)
    example = re.sub(r'^eval "\$\((.*)\)"$', r"\1", command.example)
    program, name, *words = shlex.split(example)
    assert (program, name) == ("fm2", command.name)
    Parser(command).parse_args(words)


def test_help_shows_defaults(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    page = command_help(COMMANDS["prepare"])
    assert "(default: 0.8,0.1,0.1)" in page
    assert "(default: random)" in page
    assert "(default: 0)" in page
    assert "(default: None)" not in page
    assert "(default: all cores)" in page


def test_the_defaults_in_help_texts_are_those_of_the_settings():
    stated = {}
    for option in training_options():
        match = re.search(r"\(default: (\w+)\)$", option.help)
        if match and match[1] != "all":
            stated[option.name.removeprefix("--").replace("-", "_")] = match[1]
    assert set(stated) >= {"metric", "patience", "seed"}
    for name, default in stated.items():
        assert default == str(getattr(Settings, name)), name


def test_the_main_page_lists_commands_in_groups_with_examples_and_exit_codes(capsys):
    assert main([]) == 2
    page = capsys.readouterr().err
    positions = [page.index(f"\n  {name} ") for name in COMMANDS]
    assert positions == sorted(positions)
    assert [page.index(f"\n{title}:\n") for title in GROUPS] == sorted(page.index(f"\n{title}:\n") for title in GROUPS)
    assert list(GROUPS)[:5] == ["Data", "Training", "Compression", "Serving", "Studies"]
    assert page.count("\n  fm2 ") >= 2
    for code, meaning in EXIT_CODES.items():
        assert f"\n  {code:<5}{meaning}" in page


def test_the_options_of_train_are_in_groups():
    page = command_help(COMMANDS["train"])
    assert page.startswith("usage: fm2 train MODEL DATA --out RUN [options]\n")
    for title, option in [
        ("Model", "--dim"),
        ("Optimization", "--learning-rate"),
        ("Regularization", "--l2"),
        ("Evaluation and early stopping", "--patience"),
        ("Options of most networks", "--hidden"),
        ("Options of some networks", "--cross-layers"),
    ]:
        group = page.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert f"  {option} " in group


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("trian", "fm2: unknown command 'trian'; did you mean 'train'?"),
        ("--verison", "fm2: unknown option '--verison'; did you mean '--version'?"),
        ("--debug", "fm2: a command is required; see fm2 --help"),
        ("train fmfn data --out run", "fm2: train: unknown model 'fmfn'; did you mean 'fmfm'?"),
        (
            "train --lerning-rate 0.1 fmfm data --out run",
            "fm2: train: unknown option '--lerning-rate'; did you mean '--learning-rate'?",
        ),
        (
            "train fmfm data --out run --lerning-rate=0.1",
            "fm2: train: unknown option '--lerning-rate'; did you mean '--learning-rate'?",
        ),
        (
            "train fmfm data --out run --optimizer adm",
            "fm2: train: --optimizer: unknown value 'adm'; did you mean 'adam'?",
        ),
        (
            "train fmfm data --out run --epochs many",
            "fm2: train: --epochs: expected an integer, got 'many'; see fm2 train --help",
        ),
        (
            "train deepfm data --out run --hidden wide",
            "fm2: train: --hidden: expected integers like 400,400, or none, got 'wide'; see fm2 train --help",
        ),
        ("evaluate run data --split tset", "fm2: evaluate: --split: unknown value 'tset'; did you mean 'test'?"),
        ("describe data more", "fm2: describe: unexpected argument 'more'; see fm2 describe --help"),
        ("describe", "fm2: describe: the following arguments are required: DATA; see fm2 describe --help"),
        ("describe data -x", "fm2: describe: unknown option '-x'; see fm2 describe --help"),
        ("train fmfm data --out run --epoch 3", "fm2: train: unknown option '--epoch'; did you mean '--epochs'?"),
        (
            "prepare log.csv --label click --preset criteo --out data",
            "fm2: prepare: --preset: not allowed with argument --label; see fm2 prepare --help",
        ),
    ],
)
def test_a_typing_error_is_answered_with_one_line_and_a_suggestion(typed, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(typed.split())
    assert capsys.readouterr().err == f"{message}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_suggests_its_options(name, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([name, "--debgu"])
    assert capsys.readouterr().err == f"fm2: {name}: unknown option '--debgu'; did you mean '--debug'?\n"


def test_an_unknown_model_that_resembles_no_other_is_answered_with_all(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "transformer", "data", "--out", "run"])
    assert ", ".join(model_names()) in capsys.readouterr().err


def test_two_dashes_end_the_options(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["describe", "--", "--data"]) == 1
    assert "describe" in COMMANDS
    assert "dataset: directory not found: --data;" in capsys.readouterr().err


FAILING = (
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


def test_help_and_early_errors_do_not_import_torch(tmp_path, dataset):
    code = f"""
import sys
from fm2.cli.main import main
for words in {FAILING!r}:
    try:
        assert main(words) == (0 if words == ["--help"] else 1), words
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


def test_the_main_page_imports_nothing_slow():
    """A limit on the time would fail on a busy machine; these modules are what takes the time."""
    code = """
import sys
from fm2.cli.main import main
assert main(["--help"]) == 0
slow = {"torch", "polars", "rich", "shtab", "optuna", "sklearn", "pyarrow", "pandas", "fm2.models", "fm2.data.dataset"}
print(sorted(slow & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_line_uses_no_private_attributes_of_argparse():
    for path in Path(fm2.cli.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        private = re.findall(r"(?:argparse|parser|action|group|commands|super\(\))\._[a-z]\w*", text)
        assert private == [], path
    names = {name for name in vars(Parser) if name.startswith("_") and not name.startswith("__")}
    assert names == set(), "the parser overrides private methods"


def test_an_argument_shows_its_values():
    assert Argument("--plan", "help", choices=("a", "b")).usage == "--plan a|b"
    assert Argument("source", "help", metavar="FILE", many=True).usage == "FILE ..."
