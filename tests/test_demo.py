"""The demo, on few rows: what a person who has just cloned the project sees."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def demo(directory: Path, **environment: str) -> str:
    variables = {**os.environ, "FM2_ROWS": "1200", "FM2_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, str(DEMO)], cwd=directory, env=variables, capture_output=True, text=True, check=True
    ).stdout


def test_the_whole_story(tmp_path):
    told = demo(tmp_path)
    table = told[told.index("model ") :].splitlines()
    assert [line[:18].strip() for line in table[1:9]] == [
        *("lr", "fm", "fwfm", "fvfm", "ffm", "fmfm", "fmfm, shrunk"),
        "the best possible",
    ]
    assert "Ranking 1,000 candidates in the same context" in told
    assert "The report, with pictures of all this: demo/report.html" in told
    assert "6 models compared" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "demo" / "compare" / "compare.json").is_file()
