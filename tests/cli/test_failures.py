"""Errors on the command line: one line, no traceback, and the exit code of their kind."""

from __future__ import annotations

import errno
import io
import sys

import pytest
from tests.helpers.planted import QUICK, planted

from fm2 import Fm2Error
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
            "describe requires the package 'torch'; install it with: pip install 'fm2[train]'",
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


def test_a_character_that_the_terminal_lacks_is_escaped(dataset, monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["describe", str(dataset.path)]) == 0
    assert b"4 fields" in shown.buffer.getvalue()
