"""Compiled networks score like torch, with fields of every kind, and refuse what they cannot do."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers import crosses, trees
from tests.helpers.list_log import EVERYTHING_SCHEMA, as_python_rows, everything_log
from tests.helpers.networks import pruned_run, random_run
from tests.helpers.processes import run_python

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.data.rows import EncodedRows
from fm2.engine.compile import compile
from fm2.engine.inspect import inspect
from fm2.engine.scorer import load
from fm2.engine.verify import verify
from fm2.models.registry import model_names
from fm2.training.run import Run

CLOSE = {"rtol": 0, "atol": 1e-5}
CONTEXT = ["site", "history", "price"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> fm2.Dataset:
    return fm2.prepare(everything_log(1200), EVERYTHING_SCHEMA, tmp_path_factory.mktemp("networks") / "data")


@pytest.fixture(scope="module")
def deepfm(data, tmp_path_factory) -> tuple[Run, fm2.Scorer]:
    folder = tmp_path_factory.mktemp("deepfm")
    run = random_run("deepfm", data, folder / "run")
    return run, load(compile(run.path, folder / "model.fm2").path)


def table(rows: int, seed: int = 0) -> pl.DataFrame:
    return everything_log(rows, seed).drop("click", "w")


@pytest.mark.parametrize("name", model_names(deep=True))
def test_it_scores_like_torch(data, tmp_path, name):
    run = random_run(name, data, tmp_path / "run")
    path = compile(run.path, tmp_path / "model.fm2").path
    rows = data.train.encoded
    for threads in (1, 2):
        scorer = load(path, threads=threads)
        for count in (0, 1, 300, 600):
            batch = EncodedRows(np.array(rows.ids[:count]), rows.lists)
            np.testing.assert_allclose(scorer.logits(batch), run.logits(batch), **CLOSE)
    assert run.logits(rows[:600]).std() > 0.01
    values = as_python_rows(everything_log(20, seed=3))
    np.testing.assert_allclose(scorer.predict(values), run.predict(table(20, seed=3)), **CLOSE)
    np.testing.assert_allclose([scorer.predict_one(row) for row in values], scorer.predict(values), **CLOSE)
    assert inspect(path)["parameters"] == run.model.n_parameters
    assert verify(path).kind == "compiled model"


def test_the_result_does_not_depend_on_the_threads(deepfm, data):
    _, scorer = deepfm
    rows = EncodedRows(np.resize(data.train.encoded.ids, (2000, len(data.schema.fields))), data.train.encoded.lists)
    expected = load(scorer.path, threads=1).logits(rows)
    for threads in (2, 5):
        np.testing.assert_array_equal(load(scorer.path, threads=threads).logits(rows), expected)


@pytest.mark.parametrize("candidates", [0, 1, 400])
def test_ranking_scores_complete_rows(deepfm, candidates):
    _, scorer = deepfm
    rows = as_python_rows(everything_log(401, seed=5))
    context = {name: rows[-1][name] for name in CONTEXT}
    items = [{name: value for name, value in row.items() if name not in CONTEXT} for row in rows[:candidates]]
    expected = scorer.predict([{**context, **item} for item in items]) if items else np.empty(0)
    ranked = scorer.ranker(context=CONTEXT).rank(context, items)
    np.testing.assert_allclose(ranked.probabilities, -np.sort(-expected), **CLOSE)
    np.testing.assert_allclose(expected[ranked.indices], ranked.probabilities, **CLOSE)
    assert len(scorer.ranker(context=CONTEXT).rank(context, items, top=3)) == min(3, candidates)


def test_what_networks_cannot_do_is_refused_with_the_reason(deepfm, tmp_path):
    _, scorer = deepfm
    row = as_python_rows(everything_log(1))[0]
    ranker = scorer.ranker(context=CONTEXT)
    reason = "catalog: deepfm is a network: it does not compare candidates by an inner product"
    with pytest.raises(Fm2Error, match=reason):
        ranker.catalog([row])
    with pytest.raises(Fm2Error, match=reason):
        ranker.load_catalog(tmp_path / "catalog")
    with pytest.raises(Fm2Error, match=r"explain: deepfm is a network: its logit is not a sum .* explain one of lr, "):
        scorer.explain(row)
    with pytest.raises(ValueError, match="inner product"):
        ranker._native.describe(np.zeros((1, len(ranker._candidate)), np.int32), np.zeros((1, 64), np.float32))


def test_wrong_ids_are_rejected(deepfm, data):
    _, scorer = deepfm
    rows = data.train.encoded[:3]
    wrong = np.array(rows.ids)
    wrong[1, 0] = 10_000
    with pytest.raises(Fm2Error, match="row 1 has id 10000 in field 0"):
        scorer.predict(EncodedRows(wrong, rows.lists))
    with pytest.raises(Fm2Error, match="predict: "):
        scorer.predict(wrong)


def test_it_evaluates_measures_and_works_on_the_command_line(deepfm, data, tmp_path, capsys):
    run, scorer = deepfm
    assert scorer.evaluate(data)["log_loss"] == pytest.approx(run.evaluate(data)["log_loss"], abs=1e-5)
    assert (scorer.measure_latency(data.train.encoded[:3]) > 0).all()
    everything_log(5).write_parquet(tmp_path / "rows.parquet")
    assert main(["predict", str(scorer.path), str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "p.csv")]) == 0
    assert main(["inspect", str(scorer.path)]) == 0
    assert "plan: network, ONNX Runtime" in capsys.readouterr().out
    assert main(["verify", str(scorer.path)]) == 0
    (tmp_path / "items.jsonl").write_text('{"item": "i1"}\n{"item": "i2", "tags": "t1:2"}\n')
    assert main(["rank", str(scorer.path), '{"site": "s1"}', str(tmp_path / "items.jsonl"), "--json"]) == 0
    assert capsys.readouterr().out.count('"probability"') == 2


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 0.01), ("i8", 0.1)])
def test_tables_of_short_numbers(deepfm, data, tmp_path, dtype, tolerance):
    run, exact = deepfm
    compiled = compile(run.path, tmp_path / "model.fm2", dtype=dtype)
    rows = data.train.encoded[:100]
    np.testing.assert_allclose(load(compiled.path).logits(rows), run.logits(rows), atol=tolerance)
    assert 0 < compiled.rounding_error < tolerance
    assert load(compiled.path).dtype == dtype
    assert compiled.bytes < exact.path.stat().st_size


@pytest.mark.parametrize("log", [crosses, trees], ids=["crosses", "trees"])
def test_derived_fields_calibration_and_sampled_negatives(tmp_path, log):
    data = fm2.prepare(log.log_of(3000), log.SCHEMA, tmp_path / "data", negative_rate=0.5)
    settings = {"epochs": 1, "threads": 1, "dim": 3, "hidden": (8,)}
    run = fm2.train("widedeep", data, tmp_path / "run", **settings)
    fm2.calibrate(run, data, by="user", split="train")
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    assert scorer.negative_rate == 0.5
    rows = log.log_of(50, seed=8).drop("click").to_dicts()
    expected = Run.open(run.path).predict(rows)
    np.testing.assert_allclose(scorer.predict(rows), expected, **CLOSE)
    np.testing.assert_allclose([scorer.predict_one(row) for row in rows], expected, **CLOSE)
    context = {name: rows[0][name] for name in ("user", "device")}
    items = [{name: value for name, value in row.items() if name not in context} for row in rows]
    ranked = scorer.ranker(context=list(context)).rank(context, items)
    complete = scorer.predict([{**item, **context} for item in items])
    np.testing.assert_allclose(ranked.probabilities, complete[ranked.indices], **CLOSE)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "tanh"])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_pruned_network_is_scored_by_sparse_products(data, tmp_path, activation, batch_norm):
    run = pruned_run(
        "deeplight", data, tmp_path / "run", activation=activation, batch_norm=batch_norm, hidden=(40, 30, 20)
    )
    compiled = compile(run.path, tmp_path / "model.fm2")
    assert compiled.plan == "network, sparse products"
    scorer = load(compiled.path)
    rows = data.train.encoded
    with torch.no_grad():
        assert run.model.sparsity()["network"] > 0.9
    for level in fm2.cpu_info()["levels"]:
        for count in (0, 1, 2, 7, 8, 63, 64, 65, 300):
            logits = np.empty(count, np.float32)
            batch = rows[:count]
            scorer.native.score(np.array(batch.ids), logits, 1, level, batch.native_lists())
            np.testing.assert_allclose(logits, run.logits(batch), **CLOSE)
    values = as_python_rows(everything_log(100, seed=4))
    context = {name: values[0][name] for name in CONTEXT}
    items = [{name: value for name, value in row.items() if name not in CONTEXT} for row in values]
    ranked = scorer.ranker(context=CONTEXT).rank(context, items)
    expected = scorer.predict([{**context, **item} for item in items])
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], **CLOSE)
    with pytest.raises(Fm2Error, match="catalog: deeplight is a network"):
        scorer.ranker(context=CONTEXT).catalog(items)


def test_a_sparse_network_without_hidden_layers(data, tmp_path):
    run = pruned_run("deeplight", data, tmp_path / "run", hidden=())
    rows = data.train.encoded[:50]
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    np.testing.assert_allclose(scorer.logits(rows), run.logits(rows), **CLOSE)


LOAD = """
import os, sys, fm2
scorer = fm2.load(os.environ["MODEL"])
assert 0 < scorer.predict_one({"site": "s1"}) < 1
"""


def test_scoring_needs_no_torch_and_names_the_extra_for_onnx_runtime(deepfm, data, tmp_path):
    _, scorer = deepfm
    done = run_python(f"{LOAD}assert not {{'torch', 'onnx', 'polars'}} & sys.modules.keys()", MODEL=str(scorer.path))
    assert done.returncode == 0, done.stderr
    without = f"import sys\nsys.modules['onnxruntime'] = None\n{LOAD}"
    done = run_python(without, MODEL=str(scorer.path))
    assert "is a network, and scoring it requires the package 'onnxruntime'" in done.stderr
    assert "pip install -c constraints.txt '.[serve]'" in done.stderr
    sparse = compile(pruned_run("deeplight", data, tmp_path / "run").path, tmp_path / "sparse.fm2").path
    done = run_python(without, MODEL=str(sparse))
    assert done.returncode == 0, done.stderr


def test_compiling_names_the_extra_for_onnx(deepfm, tmp_path, monkeypatch):
    run, _ = deepfm
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = r"compile: deepfm is a network, and compiling it requires the package 'onnx'; .*'\.\[onnx\]'"
    with pytest.raises(Fm2Error, match=message):
        compile(run.path, tmp_path / "model.fm2")
    with pytest.raises(Fm2Error, match="deepfm, which has no field matrices"):
        compile(run.path, tmp_path / "model.fm2", plan="spectral")
