"""The demo on a few rows: the first thing that new users run."""

from __future__ import annotations

import os
import re
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


def test_the_demo_runs_from_a_log_to_a_report(tmp_path):
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("\nmodel ")[2].splitlines()
    assert [line[:18].strip() for line in table[1:9]] == [
        *("lr", "fm", "fwfm", "fvfm", "ffm", "fmfm", "fmfm, shrunk"),
        "best possible",
    ]
    assert "Ranking 1,000 candidates in its context" in done.stdout
    assert "Serving it at http://127.0.0.1:" in done.stdout
    tops = [line for line in done.stdout.splitlines() if line.startswith("Top 3 candidates: ")]
    assert len(tops) == 2
    assert re.findall(r"#\d+", tops[0]) == re.findall(r"#\d+", tops[1]), "the server ranks as the library does"
    assert "Report with charts: demo/report.html" in done.stdout
    assert "Comparison of 6 models" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "demo" / "compare" / "compare.json").is_file()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FM2_ROWS", "many", "FM2_ROWS must be a positive number of rows, such as 200000, got 'many'"),
        ("FM2_LOG", "no.txt", "file not found: no.txt; FM2_LOG must be a log in Criteo's format"),
    ],
)
def test_invalid_variables_are_errors(name, value, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    with pytest.raises(Fm2Error, match=f"^{message}$"):
        runpy.run_path(str(DEMO))["main"]()


def test_the_log_of_an_earlier_demo_can_be_reused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "demo" / "log.tsv"
    log.parent.mkdir()
    log.write_text("1\n2\n3\n")
    runpy.run_path(str(DEMO))["first_rows"](log, 2)
    assert log.read_text() == "1\n2\n"
