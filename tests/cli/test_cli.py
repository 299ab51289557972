"""The command line, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fm2
from fm2.cli.main import main


@pytest.fixture
def log(write):
    return write("log.csv", "click,site,n\n" + "1,a,3\n0,b,700\n0,a,\n1,c [x],5\n" * 50)


def test_prepare_and_describe(log, tmp_path, capsys):
    out = tmp_path / "data"
    assert main(["prepare", str(log), "--label", "click", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "train" in printed
    assert "site" in printed
    sizes = fm2.Dataset.open(out).field_sizes
    assert f"2 fields, {sum(sizes)} features (including one unknown per field)" in printed
    assert main(["describe", str(out)]) == 0
    assert capsys.readouterr().out == printed
    assert main(["describe", str(out), "--json"]) == 0
    description = json.loads(capsys.readouterr().out)
    assert sum(split["rows"] for split in description["splits"].values()) == 200
    assert [field["name"] for field in description["fields"]] == ["site", "n"]
    assert description["fields"][0]["most_frequent"][0]["value"] == "a"
    assert description["fields"][0]["unknown"] == {"train": 0, "validation": 0, "test": 0}
    assert description["fields"][0]["features"] == 4


def test_options_reach_prepare(log, write, tmp_path, capsys):
    schema = write("schema.toml", "label = 'click'\n[[field]]\nname = 'site'\n")
    out = tmp_path / "data"
    command = ["prepare", str(log), "--schema", str(schema), "--out", str(out), "--min-count", "60", "--json"]
    assert main([*command, "--fractions", "1,0,0", "--validation", str(log), "--test", str(log)]) == 0
    description = json.loads(capsys.readouterr().out)
    assert [split["rows"] for split in description["splits"].values()] == [200, 200, 200]
    assert description["fields"][0]["features"] == 2
    assert (
        main([*command, "--overwrite", "--split", "time", "--vocabulary", "all", "--seed", "3", "--threads", "1"]) == 0
    )
    assert fm2.Dataset.open(out).train.rows.tolist() == list(range(160))


def test_errors_are_one_line(log, write, tmp_path, capsys):
    out = str(tmp_path / "data")
    bad = write("bad.csv", "click,site\n1,a\n5,b\n")
    assert main(["prepare", str(bad), "--label", "click", "--out", out]) == 1
    assert capsys.readouterr().err == (
        f"fm2: prepare: {bad} line 3: label 'click' is '5', not 0 or 1; write labels as 0 and 1, or set --impressions "
        "if they count clicks; --bad-rows skip ignores such rows\n"
    )
    assert main(["prepare", str(bad), "--label", "click", "--out", out, "--bad-rows", "skip"]) == 0
    assert "1 bad rows (50.0%) were skipped (label 1)" in capsys.readouterr().out
    assert main(["describe", str(tmp_path / "nothing")]) == 1
    assert "fm2: dataset: directory not found: " in capsys.readouterr().err
    with pytest.raises(fm2.Fm2Error):
        main(["describe", str(tmp_path / "nothing"), "--debug"])
    with pytest.raises(SystemExit, match="2"):
        main(["prepare", str(log), "--out", out])
    assert "--preset --schema --label --like is required" in capsys.readouterr().err


def test_generate_prepare_describe_as_separate_processes(tmp_path):
    def fm2_command(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([sys.executable, "-m", "fm2", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # no progress where standard error is not a terminal
        return done

    log, out = str(tmp_path / "log.tsv"), str(tmp_path / "data")
    fm2_command("generate", log, "--rows", "3000", "--features", "500", "--seed", "4")
    fm2_command("prepare", log, "--preset", "criteo", "--out", out)
    assert "39 fields" in fm2_command("describe", out).stdout
    assert fm2_command("--version").stdout == f"fm2 {fm2.__version__}\n"


def test_an_existing_log_is_replaced_only_on_request(tmp_path, capsys):
    log = tmp_path / "log.tsv"
    log.write_text("the log of a year")
    command = ["generate", str(log), "--rows", "10", "--features", "100"]
    assert main(command) == 1
    assert f"{log} already exists; use --overwrite to replace it" in capsys.readouterr().err
    assert log.read_text() == "the log of a year"
    assert main([*command, "--overwrite"]) == 0
    assert log.read_bytes().count(b"\n") == 10


def test_a_file_is_not_a_run(tmp_path, log, capsys):
    assert main(["prepare", str(log), "--label", "click", "--out", str(tmp_path / "data")]) == 0
    for flag in ([], ["--overwrite"]):
        assert main(["train", "lr", str(tmp_path / "data"), "--out", str(log), *flag]) == 1
        assert "is not a run (no settings.toml); choose another --out" in capsys.readouterr().err
