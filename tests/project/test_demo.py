"""The demo, on few rows: what a person who has just cloned the project sees."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fm2 import Fm2Error

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def demo(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "FM2_ROWS": "1200", "FM2_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, str(DEMO)], cwd=directory, env=variables, capture_output=True, text=True, check=False
    )


def test_the_whole_story(tmp_path):
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    told = done.stdout
    table = told[told.index("model ") :].splitlines()
    assert [line[:18].strip() for line in table[1:9]] == [
        *("lr", "fm", "fwfm", "fvfm", "ffm", "fmfm", "fmfm, shrunk"),
        "the best possible",
    ]
    assert "Ranking 1,000 candidates in the same context" in told
    assert "The report, with pictures of all this: demo/report.html" in told
    assert "6 models compared" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "demo" / "compare" / "compare.json").is_file()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FM2_ROWS", "many", "FM2_ROWS is 'many'; it is how many rows there are to be, such as 200000"),
        ("FM2_LOG", "no.txt", "there is no file no.txt; FM2_LOG is a log in Criteo's format"),
    ],
)
def test_what_the_demo_cannot_use_is_told(name, value, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    with pytest.raises(Fm2Error, match=f"^{message}$"):
        runpy.run_path(str(DEMO))["main"]()


def test_a_log_of_the_demos_own_can_be_given_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "demo" / "log.tsv"
    log.parent.mkdir()
    log.write_text("1\n2\n3\n")
    runpy.run_path(str(DEMO))["first_rows"](log, 2)
    assert log.read_text() == "1\n2\n"
