"""The wheel serves a compiled model in an environment that has numpy and nothing else. `make wheel-test` runs this."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.helpers.documentation import ROOT
from tests.helpers.planted import QUICK, planted

import fm2

SERVE = """
import importlib.util, json, shutil, sys
import fm2

assert fm2.__file__.startswith(sys.prefix), fm2.__file__
for package in ("torch", "polars", "pip", "setuptools"):
    assert importlib.util.find_spec(package) is None, package
for compiler in ("cc", "c++", "gcc", "g++", "clang"):
    assert shutil.which(compiler) is None, compiler

scorer = fm2.load(sys.argv[1])
rows = json.loads(sys.argv[2])
candidates = [{name: value for name, value in row.items() if name != "c0"} for row in rows]
ranked = scorer.ranker(context=["c0"]).rank({"c0": rows[0]["c0"]}, candidates, top=5)
print(json.dumps({
    "predicted": scorer.predict(rows).tolist(),
    "one": scorer.predict_one(rows[0]),
    "ranked": ranked.probabilities.tolist(),
}))
"""


@pytest.fixture
def wheel() -> Path:
    path = os.environ.get("FM2_WHEEL")
    if not path:
        pytest.skip("the wheel: `make wheel-test` builds and tests it")
    return Path(path).resolve()


@pytest.fixture
def python(wheel, tmp_path) -> Path:
    """Create an environment with the wheel and numpy, and return its Python."""
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    for directory in Path(np.__file__).parent.parent.glob("numpy*"):  # linked: the test needs no network
        (packages / directory.name).symlink_to(directory)
    return python


def test_the_wheel_loads_scores_and_ranks_with_numpy_alone(python, dataset, tmp_path):
    run = fm2.train("fmfm", dataset, tmp_path / "run", **QUICK, dim=4)
    fm2.compile(run.path, tmp_path / "model.fm2")
    table = planted(40, seed=5)
    rows = table.drop("click").to_dicts()
    done = subprocess.run(
        [python, "-I", "-c", SERVE, tmp_path / "model.fm2", json.dumps(rows)],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)
    expected = run.predict(table)
    np.testing.assert_allclose(served["predicted"], expected, atol=1e-5)
    assert served["one"] == pytest.approx(expected[0], abs=1e-5)
    candidates = table.with_columns(pl.lit(rows[0]["c0"]).alias("c0"))
    np.testing.assert_allclose(served["ranked"], np.sort(run.predict(candidates))[::-1][:5], atol=1e-5)


def test_the_wheel_contains_the_types_the_page_and_the_license(wheel):
    listing = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True
    ).stdout
    page = [f"fm2/serving/page/{file.name}" for file in (ROOT / "src" / "fm2" / "serving" / "page").iterdir()]
    assert "fm2/serving/page/index.html" in page
    for name in ("fm2/py.typed", "fm2/_native.pyi", "licenses/LICENSE", *page):
        assert name in listing
