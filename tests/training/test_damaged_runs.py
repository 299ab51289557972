"""Damaged or hostile files of a run: an error before anything is trained or allocated."""

from __future__ import annotations

import json

import pytest
from tests.helpers.runs import load_arrays

import fm2
from fm2 import Fm2Error
from fm2.artifacts.arrays import save_arrays
from fm2.artifacts.run_directory import read_history
from fm2.models import build
from fm2.training.train import train


@pytest.fixture
def run(dataset, tmp_path):
    return train("poly2", dataset, tmp_path / "run", hash_bits=8, epochs=1, threads=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("row", 1 << 63), ("row", -1), ("row", 1.5), ("epoch", "1"), ("steps", 1 << 40), ("best", "x"), ("loss", None)],
)
def test_a_position_outside_the_training_is_not_resumed(dataset, run, name, value):
    file = run.path / "checkpoint.safetensors"
    arrays, values = load_arrays(file)
    values["position"][name] = value
    save_arrays(file, arrays, values)
    with pytest.raises(Fm2Error, match=rf"checkpoint.safetensors is damaged .*: the position has {name} "):
        train("poly2", dataset, run.path, resume=True, epochs=2)


@pytest.mark.parametrize("line", ["5", "[]", '{"epoch": "x", "best": true}', '{"epoch": 1.0, "best": true}'])
def test_a_history_of_something_else_is_an_error(run, line):
    file = run.path / "history.jsonl"
    assert len(read_history(file)) == 1
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(Fm2Error, match=r"history.jsonl is damaged: line 2 is not an evaluation$"):
        read_history(file)


@pytest.mark.parametrize(
    ("bits", "problem"),
    [(1 << 63, "hash_bits must be an integer between 1 and 30"), (30, "more parameters than the file")],
)
def test_a_model_with_an_absurd_table_is_refused_before_it_is_allocated(run, bits, problem):
    file = run.path / "model.safetensors"
    arrays, values = load_arrays(file)
    values["model"]["hash_bits"] = bits
    save_arrays(file, arrays, values)
    with pytest.raises(Fm2Error, match=problem):
        fm2.Run.open(run.path)


def test_a_network_with_absurd_layers_is_refused_before_it_is_allocated(dataset, tmp_path):
    run = train("widedeep", dataset, tmp_path / "run", hidden=[4, 4], dim=2, epochs=1, threads=1)
    arrays, values = load_arrays(run.path / "model.safetensors")
    values["model"]["hidden"] = [65_536, 65_536]
    save_arrays(run.path / "model.safetensors", arrays, values)
    with pytest.raises(Fm2Error, match="its model has more parameters than the file"):
        fm2.Run.open(run.path)


def test_errors_about_a_model_name_what_failed():
    with pytest.raises(Fm2Error, match=r"^build: unknown model 'fmfn'; did you mean 'fmfm'\?$"):
        build({"model": "fmfn", "field_sizes": [2, 2]})
    with pytest.raises(
        Fm2Error, match=r"^build: invalid config for poly2: hash_bits must be an integer between 1 and 30"
    ):
        build({"model": "poly2", "field_sizes": [2, 2], "hash_bits": 1 << 63})


def test_a_comparison_refers_only_to_runs_in_its_directory(run, tmp_path):
    from fm2.studies.comparison.results import COLUMNS, Comparison

    row = {**dict.fromkeys(COLUMNS), "model": "poly2", "seed": 0, "run": "poly2-0", "error": "failed"}
    comparison = Comparison(tmp_path, "data", "fingerprint", "test", ["poly2"], [0], rows=[row])
    comparison.save()
    assert Comparison.open(tmp_path).rows[0]["run"] == "poly2-0"
    for name in (str(run.path), "../run", "..", ".", "", "a/b"):
        values = json.loads((tmp_path / "compare.json").read_text())
        values["rows"][0]["run"] = name
        (tmp_path / "compare.json").write_text(json.dumps(values))
        with pytest.raises(Fm2Error, match="expected the name of a run"):
            Comparison.open(tmp_path)
