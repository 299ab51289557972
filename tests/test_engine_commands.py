"""Compiling, predicting and ranking on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.planted import QUICK, planted

from fm2 import Fm2Error
from fm2.cli import main
from fm2.engine.commands import read_size
from fm2.engine.inspection import operations
from fm2.models.paper import CRITEO_DIMS
from fm2.training.fitting import train


def test_a_run_is_compiled_and_the_file_predicts_and_ranks(dataset, tmp_path, capsys):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK)
    model, rows = str(tmp_path / "model.fm2"), planted(100, seed=3)
    assert main(["compile", str(run.path), "--out", model]) == 0
    told = capsys.readouterr().out
    assert "direct" in told
    assert "µs a row, median" in told
    assert main(["compile", str(run.path), "--out", model, "--plan", "cached", "--dtype", "f32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / "model.fm2").stat().st_size

    rows.drop("click").write_csv(tmp_path / "rows.csv")
    assert main(["predict", model, str(tmp_path / "rows.csv"), "--out", str(tmp_path / "p.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), run.predict(rows), atol=1e-5)
    capsys.readouterr()

    rows.drop("click", "c0").write_ndjson(tmp_path / "ads.jsonl")
    command = ["rank", model, '{"c0": "v3"}', str(tmp_path / "ads.jsonl"), "--top", "3"]
    assert main([*command, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    whole = run.predict(rows.with_columns(c0=rows["c0"].replace_strict({}, default="v3")))
    best = np.argsort(-whole, kind="stable")[:3]
    assert [line["place"] for line in lines] == best.tolist()
    np.testing.assert_allclose([line["probability"] for line in lines], whole[best], atol=1e-5)
    assert lines[0]["candidate"] == rows.drop("click", "c0").to_dicts()[best[0]]
    assert main(command) == 0
    assert capsys.readouterr().out.count("\n") == 3


def test_a_compiled_model_predicts_without_torch(dataset, tmp_path):
    train("lr", dataset, tmp_path / "run", **QUICK)
    planted(10).write_csv(tmp_path / "rows.csv")
    code = """
import sys; sys.modules["torch"] = None
from fm2.cli import main
assert main(["compile", "run", "--out", "model.fm2"]) == 0
assert main(["predict", "model.fm2", "rows.csv", "--out", "p.txt"]) == 0
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert len((tmp_path / "p.txt").read_text().split()) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rank", "{model}", "{{", "x"], "the context '{' is neither JSON nor a file of JSON"),
        (["rank", "{model}", "[1]", "x"], "neither JSON nor a file"),
        (["rank", "{model}", '{{"c0": 1}}', "{model}"], "cannot be read"),
        (["rank", "{model}", '{{"c7": 1}}', "{lines}"], "the model has no column 'c7'"),
        (["rank", "{model}", '{{"c0": 1, "c1": 2}}', "{lines}"], "line 1: 'c1' is a column of the context already"),
        (["compile", "{run}", "--out", "x", "--memory", "much"], "--memory is 'much', not a size"),
        (["compile", "{none}", "--out", "x"], "has no trained model of its own, but there are runs in it"),
        (["compile", "{none}/nothing", "--out", "x"], "has no trained model (model.safetensors), for it is not there"),
        (["compile", "{lines}", "--out", "x"], "is a file; this needs the run"),
        (["rank", "{run}", '{{"c0": 1}}', "{lines}"], "is not a file but a directory; fm2 compile makes"),
        (["predict", "{lines}", "{lines}", "--out", "x"], "is no model that can be used"),
    ],
)
def test_what_is_wrong_is_told(dataset, tmp_path, capsys, arguments, message):
    train("lr", dataset, tmp_path / "run", **QUICK)
    main(["compile", str(tmp_path / "run"), "--out", str(tmp_path / "model.fm2")])
    (tmp_path / "lines").write_text('{"c1": "v1"}\n' * 10)
    places = {"model": tmp_path / "model.fm2", "lines": tmp_path / "lines", "run": tmp_path / "run", "none": tmp_path}
    assert main([argument.format(**places) for argument in arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lr", "poly2", "fm", "ffm", "fvfm"])
def test_a_model_tells_what_it_is_made_of(dataset, tmp_path, capsys, name):
    run = train(name, dataset, tmp_path / "run", **QUICK)
    assert main(["compile", str(run.path), "--out", str(tmp_path / "model.fm2")]) == 0
    capsys.readouterr()
    for path in (run.path, tmp_path / "model.fm2"):
        assert main(["inspect", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["parameters"] == run.model.n_parameters
        assert next(iter(found["flops"].values())) == run.model.flops()
        assert [field["features"] for field in found["fields"]] == dataset.field_sizes
    assert main(["inspect", str(tmp_path / "model.fm2")]) == 0
    assert "operations per prediction" in capsys.readouterr().out


def test_the_papers_figures_come_out():
    """The table of section 4.2, n = 39 and K = 16, and the cached one of section 4.3."""
    every = {"field_sizes": [9] * 39, "dims": [16] * 39, "dim": 16, "linear": "features"}
    assert operations({**every, "model": "lr"}) == {"sums": 78}
    assert operations({**every, "model": "poly2"}) == {"sums": 1560}
    assert operations({**every, "model": "fm"}) == {"sums": 1920}
    assert operations({**every, "model": "ffm"}) == {"pairs": 24531}
    assert operations({**every, "model": "fwfm"})["direct"] == 25272
    assert operations({**every, "model": "fmfm"}) == {"direct": 403923, "cached": 24531}
    assert operations({**every, "model": "fmfm", "dims": list(CRITEO_DIMS)})["cached"] == 8960
    assert operations({**every, "model": "fmfm"}, "spectral, rank 16")["spectral"] == 734


def test_sizes_are_read():
    assert read_size("2GB") == 2e9
    with pytest.raises(Fm2Error, match="not a size"):
        read_size("2 apples")
