"""Predictions of a run, and model files that do not fit."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.planted import QUICK, planted
from tests.helpers.runs import load_arrays

from fm2 import Fm2Error
from fm2.artifacts.arrays import save_arrays
from fm2.cli.main import main
from fm2.evaluation.prediction import predict_files
from fm2.training.run import Run
from fm2.training.train import train


def test_predictions_need_no_label_and_survive_reloading(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK)
    rows = planted(300, seed=3)
    expected = run.predict(rows.drop("click"))
    np.testing.assert_array_equal(Run.open(tmp_path / "run").predict(rows), expected)
    for name, table in (("with.csv", rows), ("without.csv", rows.drop("click"))):
        table.write_csv(tmp_path / name)
        assert main(["predict", str(tmp_path / "run"), str(tmp_path / name), "--out", str(tmp_path / "p.npy")]) == 0
        np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected, atol=1e-6)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "with.csv"), "--out", str(tmp_path / "p.txt")]) == 0
    np.testing.assert_allclose(np.loadtxt(tmp_path / "p.txt"), expected, atol=1e-6)
    with pytest.raises(Fm2Error, match=r"with.csv is one of the input files"):
        predict_files(run, [tmp_path / "with.csv"], tmp_path / "with.csv")
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "with.csv"), "--out", str(tmp_path / "pipe")]) == 0
    assert os.read(pipe, 10**6) == (tmp_path / "p.txt").read_bytes()
    os.close(pipe)
    command = [
        sys.executable,
        "-m",
        "fm2",
        "predict",
        str(tmp_path / "run"),
        str(tmp_path / "with.csv"),
        "--out",
        "-",
    ]
    predict_files(run, tmp_path / "with.csv", tmp_path / "p.csv", keep=["c1"])
    command += ["--keep", "c1"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == (tmp_path / "p.csv").read_bytes()
    with (tmp_path / "more.txt").open("wb") as file:
        file.write(b"what was there\n")
        file.flush()
        subprocess.run(command, stdout=file, check=True)
    assert (tmp_path / "more.txt").read_bytes() == b"what was there\n" + (tmp_path / "p.csv").read_bytes()
    (tmp_path / "bad.csv").write_text("c0,c1,c2,c3\na,b,c,d\na,b\n")
    with pytest.raises(Fm2Error, match=r"predict: .*bad.csv line 3: expected 4 columns, got 2"):
        main(["predict", str(tmp_path / "run"), str(tmp_path / "bad.csv"), "--out", str(tmp_path / "q"), "--debug"])
    assert not (tmp_path / "q").exists()


def test_a_column_of_unknown_values_is_reported(dataset, tmp_path, capsys):
    train("lr", dataset, tmp_path / "run", **QUICK)
    planted(200, seed=3).with_columns(c1=pl.lit("strange")).write_csv(tmp_path / "rows.csv")
    command = ["predict", str(tmp_path / "run"), str(tmp_path / "rows.csv"), "--out", str(tmp_path / "p.txt")]
    assert main([*command, "--threads", "1"]) == 0
    told = capsys.readouterr()
    assert told.err == "fm2: field 'c1': 100% of the values are unknown to the model\n"
    assert "wrote 200 probabilities to " in told.out
    assert main([*command, "--threads", "-1"]) == 1
    assert "predict: --threads must be between 1 and 1024, or 0 for all, got -1" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lr", "poly2", "fm", "ffm", "fwfm", "fvfm", "fmfm"])
def test_a_run_scores_as_its_module_does(dataset, tmp_path, name):
    run = train(name, dataset, tmp_path / "run", **QUICK)
    ids = np.array(dataset.test.ids)
    with torch.no_grad():
        expected = torch.sigmoid(run.model(torch.from_numpy(ids))).numpy()
    np.testing.assert_allclose(run.probabilities(ids), expected, rtol=1e-5)
    np.testing.assert_array_equal(run.probabilities(ids.astype(np.int64)), run.probabilities(ids))
    ids[3, 1] = 1000
    with pytest.raises(Fm2Error, match=r"do not fit the model .* the id of field 1 must be between 0 and 12, got 1000"):
        run.probabilities(ids)


def test_inconsistent_model_files_raise_errors(dataset, tmp_path):
    train("fmfm", dataset, tmp_path / "run", **QUICK)
    path = tmp_path / "run" / "model.safetensors"
    arrays, values = load_arrays(path)
    weight, ends = arrays["model.embedding.weight"], arrays["vocabulary.0.ends"]
    for changed, other, message in (
        ({"model.embedding.weight": weight[:-1]}, {}, "embedding.weight is float32"),
        ({"model.embedding.weight": weight.astype(np.float64)}, {}, "embedding.weight is float64"),
        ({"model.embedding.weight": weight * np.float32(np.nan)}, {}, "has values that are not finite"),
        ({"vocabulary.0.ends": ends[:-1]}, {}, "the ends of the values do not match the data"),
        ({"vocabulary.0.ends": ends[None]}, {}, "the array 'ends' has a wrong type or shape"),
        ({"vocabulary.0.hashed": np.array(8)}, {}, "differ from the model's field sizes"),
        ({}, {"metrics": None}, "NoneType"),
        ({}, {"schema": None}, "NoneType"),
        ({}, {"model": []}, "list indices"),
        ({}, {"model": {**values["model"], "field_sizes": [10**13] * 4}}, "differ from the model's field sizes"),
        ({}, {"model": {**values["model"], "dims": [10**13] * 4}}, ""),
    ):
        save_arrays(path, {**arrays, **changed}, {**values, **other})
        with pytest.raises(Fm2Error, match=f"is damaged or was not written by fm2: .*{message}"):
            Run.open(tmp_path / "run")
    save_arrays(path, arrays, {**values, "version": 2})
    with pytest.raises(Fm2Error, match="has the format 'fm2 model' 2; this version of fm2 reads 'fm2 model' 1"):
        Run.open(tmp_path / "run")
