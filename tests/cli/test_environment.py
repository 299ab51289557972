"""Problems of the system or the command line: one line on standard error, and no internal error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.helpers.planted import QUICK, planted

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.training.train import train


def run_closed(words: list[str], *descriptors: int) -> tuple[int, str, str]:
    """Run the command line with closed standard streams."""
    command = f"exec {sys.executable} -m fm2 {' '.join(words)} {' '.join(f'{number}>&-' for number in descriptors)}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_closed_streams_are_not_an_internal_error(dataset):
    words = ["describe", str(dataset.path), "--json"]
    assert run_closed(words, 1) == (1, "", "fm2: describe: Bad file descriptor\n")
    code, shown, _ = run_closed(words, 0, 2)
    assert (code, shown[:9]) == (0, '{"path": ')


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("can't start new thread"), "describe: can't start new thread"),
        (RuntimeError("Symlink loop from '/tmp/loop'"), "describe: Symlink loop from '/tmp/loop'"),
        (type("PanicException", (BaseException,), {})("index out of bounds"), "describe: index out of bounds"),
        (Fm2Error("describe: column '\x1b[31m'"), r"describe: column '\x1b[31m'"),
    ],
)
def test_the_environment_is_not_an_internal_error(error, message, monkeypatch, capsys):
    def fail(path: str) -> None:
        raise error

    monkeypatch.setattr("fm2.data.dataset.Dataset.open", fail)
    assert main(["describe", "data"]) == 1
    assert capsys.readouterr().err == f"fm2: {message}\n"


def test_paths_that_are_not_utf8_are_refused(dataset, tmp_path, capsys):
    run = train("lr", dataset, tmp_path / "run", **QUICK)
    odd = tmp_path / os.fsdecode(b"caf\xe9.fm2")
    for call in (lambda: fm2.compile(run.path, odd), lambda: fm2.load(odd)):
        with pytest.raises(Fm2Error, match=r"is not valid UTF-8; rename it$"):
            call()
    assert not odd.exists()
    assert main(["compile", str(run.path), "--out", str(odd)]) == 1
    assert r"caf\xe9.fm2 is not valid UTF-8; rename it" in capsys.readouterr().err


def test_a_full_disk_has_the_same_message_in_every_format(dataset, tmp_path, capsys):
    run = train("lr", dataset, tmp_path / "run", **QUICK)
    planted(10).write_csv(tmp_path / "rows.csv")
    for name in ("p.npy", "log.parquet"):
        (tmp_path / name).symlink_to("/dev/full")
    assert main(["predict", str(run.path), str(tmp_path / "rows.csv"), "--out", str(tmp_path / "p.npy")]) == 1
    assert capsys.readouterr().err == f"fm2: predict: {tmp_path / 'p.npy'}: No space left on device\n"
    words = ["generate", str(tmp_path / "log.parquet"), "--rows", "100", "--features", "100", "--overwrite"]
    assert main(words) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"fm2: generate: {tmp_path / 'log.parquet'}: ")
    assert shown.endswith(", perhaps because the disk is full\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("prepare log.csv --label y --out data --fractions some", "expected numbers like 0.8,0.1,0.1, got 'some'"),
        ("shrink run data --out small --variance a", "expected a number, or several like 0.8,0.95, got 'a'"),
        ("cut run data --out small --rank a", "expected an integer, or several like 8,16, got 'a'"),
        ("reproduce criteo log.txt --out tables --tables x", "expected numbers like 5,6, got 'x'"),
        ("compile run --out model.fm2 --memory much", "expected a size like 500MB or 2GB, got 'much'"),
        ("train widedeep data --out run --hidden 8,x", "expected integers like 400,400, or none, got '8,x'"),
    ],
)
def test_an_invalid_list_is_an_invalid_command_line(words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    name, option = words.split()[0], words.split()[-2]
    assert capsys.readouterr().err == f"fm2: {name}: {option}: {message}; see fm2 {name} --help\n"


def test_a_message_about_a_parameter_names_the_option(dataset, tmp_path, capsys):
    words = ["train", "fmfm", str(dataset.path), "--out", str(tmp_path / "run")]
    assert main([*words, "--learning-rate", "-1"]) == 1
    assert capsys.readouterr().err.startswith("fm2: train: --learning-rate must be a number between ")
    assert main([*words, "--cross-rank", "3"]) == 1
    assert capsys.readouterr().err.startswith("fm2: train: fmfm does not use --cross-rank; it applies to dcnv2")
    (tmp_path / "settings.toml").write_text("learning_rate = -1\n")
    assert main([*words, "--settings", str(tmp_path / "settings.toml")]) == 1
    assert "settings.toml: learning_rate must be a number between " in capsys.readouterr().err
