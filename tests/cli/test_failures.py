"""Errors on the command line: one line, no traceback, and the exit code of their kind."""

from __future__ import annotations

import ast
import errno
import io
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.helpers.planted import QUICK, planted

import fm2
from fm2 import Fm2Error
from fm2.cli.exit_codes import explain
from fm2.cli.main import main
from fm2.training.train import train


def undecodable() -> UnicodeDecodeError:
    with pytest.raises(UnicodeDecodeError) as raised:
        b"caf\xe9".decode()
    return raised.value


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (Fm2Error("describe: no\nsuch thing"), "describe: no such thing", 1),
        (
            Fm2Error(
                'no: use overwrite=True, bad_rows="skip", fractions=, start= or out=; a/split=train and json=3 stay'
            ),
            "no: use --overwrite, --bad-rows skip, --fractions, --from or --out; a/split=train and json=3 stay",
            1,
        ),
        (OSError(errno.ENOSPC, "No space left on device", "data/ids.npy"), "data/ids.npy: No space left on device", 1),
        (PermissionError(errno.EACCES, "Permission denied"), "describe: Permission denied", 1),
        (MemoryError(), "describe: not enough memory; use fewer rows", 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 TB"), "describe: not enough memory (Default", 1),
        (undecodable(), "describe: the input is not valid UTF-8 (byte 3)", 1),
        (
            KeyError("rows"),
            "describe: KeyError: 'rows'; internal error; please report it (--debug shows the traceback)",
            3,
        ),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            "describe requires the package 'torch'; install it in a clone of fm2 with: "
            "pip install -c constraints.txt '.[train]'",
            1,
        ),
        (KeyboardInterrupt(), "interrupted; no output was written", 130),
    ],
)
def test_an_error_is_one_line(error, message, code, monkeypatch, capsys):
    def fail(path: str) -> None:
        raise error

    monkeypatch.setattr("fm2.data.dataset.Dataset.open", fail)
    assert main(["describe", "data"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("fm2: ")
    assert message in shown
    assert shown.count("\n") == 1
    if code != 130:
        for words in (["--debug", "describe", "data"], ["describe", "data", "--debug"]):
            with pytest.raises(type(error)):
                main(words)


@pytest.fixture
def default_handler():
    """Python's own handler of Ctrl-C: torchrun, in the tests of several workers, leaves another one behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_handler")
def test_a_second_interrupt_does_not_interrupt_the_message_of_the_first(monkeypatch, capsys):
    def fail(path: str) -> None:
        raise KeyboardInterrupt

    def explain_slowly(*arguments):
        signal.raise_signal(signal.SIGINT)
        return explain(*arguments)

    monkeypatch.setattr("fm2.data.dataset.Dataset.open", fail)
    monkeypatch.setattr("fm2.cli.main.explain", explain_slowly)
    assert main(["describe", "data"]) == 130
    assert capsys.readouterr().err == "fm2: interrupted; no output was written\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_full_disk_is_reported_and_leaves_nothing(dataset, tmp_path, capsys):
    run = train("lr", dataset, tmp_path / "run", **QUICK)
    planted(10).write_csv(tmp_path / "rows.csv")
    assert main(["predict", str(run.path), str(tmp_path / "rows.csv"), "--out", "/dev/full"]) == 1
    assert capsys.readouterr().err == "fm2: predict: /dev/full: No space left on device\n"
    for words in (["compile", str(run.path)], ["export", str(run.path)]):
        assert main([*words, "--out", "/proc/model"]) == 1
        shown = capsys.readouterr().err
        assert shown.startswith(f"fm2: {words[0]}: ")
        assert shown.count("\n") == 1


def test_arguments_in_the_wrong_order_are_named(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(dataset.path)
    fm2.compile(train("fmfm", dataset, "run", **QUICK).path, "model.fm2")
    planted(10).write_csv("rows.csv")
    row, swapped = '{"f0": "a"}', "the arguments are in the wrong order: "
    for words, message in (
        ("evaluate data run", f"{swapped}run is a run, not DATA; use fm2 evaluate MODEL DATA"),
        ("evaluate data model.fm2", f"{swapped}model.fm2 is a compiled model, not DATA; use fm2 evaluate MODEL DATA"),
        ("calibrate data run", f"{swapped}run is a run, not DATA; use fm2 calibrate RUN [DATA]"),
        ("shrink data run --out small", f"{swapped}run is a run, not DATA; use fm2 shrink RUN DATA"),
        ("ablate data run --out out", f"{swapped}run is a run, not DATA; use fm2 ablate RUN DATA"),
        ("predict rows.csv run --out p.csv", f"{swapped}run is a run, not INPUT; use fm2 predict MODEL INPUT ..."),
        ("explain ROW model.fm2", f"{swapped}model.fm2 is a compiled model, not ROW; use fm2 explain MODEL ROW"),
    ):
        assert main([row if word == "ROW" else word for word in words.split()]) == 1
        assert capsys.readouterr().err == f"fm2: {words.split()[0]}: {message}\n"
    for words in (["train", "data", "fmfm", "--out", "new"], ["reproduce", "data", "criteo", "--out", "new"]):
        with pytest.raises(SystemExit):
            main(words)
        assert re.search("expected the name of a (model|log) before the path 'data'", capsys.readouterr().err)
    assert main(["evaluate", "run", "run"]) == 1  # not swapped
    assert "run is a run, not a prepared dataset" in capsys.readouterr().err


def test_a_character_that_the_terminal_lacks_is_escaped(dataset, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["describe", str(dataset.path)]) == 0
    assert b"4 fields" in shown.buffer.getvalue()


def test_warnings_of_fm2_are_printed_like_messages(tmp_path, capsys):
    log = tmp_path / "log.tsv"
    log.write_text("y\ttags\n" + "".join(f'{i % 2}\t["a", "b{i % 3}"]\n' for i in range(40)))
    assert main(["prepare", str(log), "--label", "y", "--out", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().err
    assert shown.startswith('fm2: infer: column \'tags\' contains lists in brackets, such as ["a", "b0"]')
    assert shown.count("\n") == 1


def test_errors_outside_the_command_line_name_parameters_and_no_options():
    for path in Path(fm2.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        raised = [] if "cli" in path.parts else [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        for node in (child for error in raised for child in ast.walk(error)):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            without_commands = re.sub(r"fm2 [a-z]+ --", "", text)  # a command may be named as a whole
            assert not re.search(r"(?<![\w-])--[a-z]", without_commands), f"{path}: {text}"
