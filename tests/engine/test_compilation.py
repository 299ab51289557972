"""Compiled models score like the trained ones: every plan, every instruction set, from ids and from raw rows."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.helpers.planted import QUICK, planted
from tests.helpers.runs import load_arrays

import fm2
from fm2.artifacts.arrays import save_arrays
from fm2.engine.compile import compile
from fm2.engine.plans import Plan
from fm2.engine.scorer import load
from fm2.training.train import train

MODELS = {
    "lr": {},
    "poly2": {"hash_bits": 12},
    "fm": {"dim": 5},
    "ffm": {"dim": 3},
    "fwfm": {"dim": 5},
    "fvfm": {"dim": 8, "linear": "both"},
    "fmfm": {"dim": [3, 1, 17, 8], "linear": "fields"},
}
PLANS = ("direct", "cached")


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    """Train every model once."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: train(name, dataset, folder / name, **{**QUICK, **settings}) for name, settings in MODELS.items()}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
def test_every_plan_agrees_with_the_trained_model(runs, dataset, tmp_path, name, plan, level):
    run = runs[name]
    compile(run.path, tmp_path / "model.fm2", plan=plan)
    scorer = load(tmp_path / "model.fm2")
    ids = np.ascontiguousarray(dataset.test.ids)
    logits = np.empty(len(ids), np.float32)
    scorer.native.score(ids, logits, 0, level)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits.astype(np.float64))), run.probabilities(ids), atol=1e-5)
    rows = planted(300, seed=3)
    expected = run.predict(rows)
    np.testing.assert_allclose(scorer.predict(rows), expected, atol=1e-5)
    np.testing.assert_allclose(scorer.predict(rows.to_dicts()), expected, atol=1e-5)
    np.testing.assert_allclose(scorer.predict(rows.to_dict(as_series=False)), expected, atol=1e-5)
    assert scorer.predict_one(rows.to_dicts()[7]) == pytest.approx(expected[7], abs=1e-5)


@pytest.mark.parametrize("memory", [0, 500, 1500, 4000])
def test_products_that_do_not_fit_into_memory_are_computed(runs, dataset, tmp_path, memory):
    run = runs["fmfm"]
    compile(run.path, tmp_path / "model.fm2", plan="cached", memory=memory)
    probabilities = load(tmp_path / "model.fm2").predict(np.asarray(dataset.test.ids))
    np.testing.assert_allclose(probabilities, run.probabilities(dataset.test.ids), atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 2e-3), ("i8", 3e-2)])
@pytest.mark.parametrize("name", MODELS)
def test_smaller_dtypes_are_close(runs, dataset, tmp_path, name, dtype, tolerance):
    run = runs[name]
    compiled = compile(run.path, tmp_path / "model.fm2", plan="cached", dtype=dtype)
    probabilities = load(tmp_path / "model.fm2").predict(np.asarray(dataset.test.ids))
    np.testing.assert_allclose(probabilities, run.probabilities(dataset.test.ids), atol=tolerance)
    assert (compiled.rounding_error > 0) == (name not in ("lr", "poly2"))


@pytest.mark.parametrize(("name", "plan"), [*((name, "cached") for name in MODELS), ("fmfm", "spectral")])
def test_contributions_add_up_to_the_logit(runs, tmp_path, name, plan):
    compile(runs[name].path, tmp_path / "model.fm2", plan=plan, rank=29 if plan == "spectral" else None)
    scorer = load(tmp_path / "model.fm2")
    row = planted(5, seed=3).to_dicts()[2]
    explanation = scorer.explain(row)
    assert explanation.logit == pytest.approx(float(scorer.logits([row])[0]), abs=1e-5)
    assert explanation.probability == pytest.approx(scorer.predict_one(row), abs=1e-5)
    assert (len(explanation.fields), len(explanation.pairs)) == (4, 6)
    if name == "lr":
        assert not any(explanation.pairs.values())
    if name == "fmfm":
        model = runs[name].model
        table, ids = model.tables["embedding"], scorer.encode([row])[0]
        offsets = [offset + id * dim for offset, id, dim in zip(table.offsets, ids, table.dims, strict=True)]
        vectors = [table.weight[offset : offset + dim] for offset, dim in zip(offsets, table.dims, strict=True)]
        term = (vectors[1] @ model.field_matrix(1, 2) @ vectors[2]).detach()
        assert explanation.pairs["c1", "c2"] == pytest.approx(float(term), abs=1e-5)
    assert explanation.largest(1)[0][1] == max([*explanation.fields.values(), *explanation.pairs.values()], key=abs)


def test_the_spectral_plan_is_exact_at_full_rank_and_close_below(runs, dataset, tmp_path):
    run, ids = runs["fmfm"], np.asarray(dataset.test.ids)
    expected = run.probabilities(ids)
    errors = []
    for rank in (1, 4, 12, 29):
        compile(run.path, tmp_path / "model.fm2", plan="spectral", rank=rank, data=dataset)
        errors.append(float(np.abs(load(tmp_path / "model.fm2").predict(ids) - expected).max()))
    assert errors[-1] < 1e-5
    assert errors == sorted(errors, reverse=True)
    with pytest.raises(fm2.Fm2Error, match="rank must be between 1 and the sum of the dimensions, 29, got 30"):
        compile(run.path, tmp_path / "model.fm2", plan="spectral", rank=30)


def test_auto_keeps_the_fastest_plan(runs, tmp_path):
    compiled = compile(runs["fmfm"].path, tmp_path / "model.fm2")
    assert len(compiled.measured) == 3
    assert compiled.plan == min(compiled.measured, key=lambda title: compiled.measured[title])
    scorer = load(tmp_path / "model.fm2")
    assert scorer.meta["plan"] == compiled.plan
    assert scorer.meta["measured"] == compiled.measured
    assert compiled.bytes == (tmp_path / "model.fm2").stat().st_size
    assert list(tmp_path.iterdir()) == [tmp_path / "model.fm2"]


def test_auto_writes_each_plan_once_and_renames_the_fastest(runs, tmp_path, monkeypatch):
    written = []
    write_rows = Plan.write_rows

    def write_and_list(plan, out):
        written.append((plan.title, len(list(tmp_path.rglob("*.fm2")))))
        return write_rows(plan, out)

    monkeypatch.setattr(Plan, "write_rows", write_and_list)
    compiled = compile(runs["fmfm"].path, tmp_path / "model.fm2")
    assert [title for title, _ in written] == list(compiled.measured)
    assert max(files for _, files in written) == 2  # the fastest so far and the new one


@pytest.mark.parametrize("plan", ["auto", "direct", "spectral"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_compilation_leaves_no_files_and_keeps_the_old_model(runs, tmp_path, monkeypatch, plan, existing):
    out = tmp_path / "model.fm2"
    if existing:
        compile(runs["lr"].path, out)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write_rows, calls = Plan.write_rows, []

    def fail_at_last(candidate, rows):
        calls.append(candidate.title)
        if len(calls) == (3 if plan == "auto" else 1):
            raise OSError(28, "No space left on device")
        return write_rows(candidate, rows)

    monkeypatch.setattr(Plan, "write_rows", fail_at_last)
    with pytest.raises(fm2.Fm2Error, match=f"compile: cannot write to {tmp_path}: No space left on device"):
        compile(runs["fmfm"].path, out, plan=plan)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("plan", ["auto", "direct"])
def test_only_a_file_is_replaced(runs, tmp_path, plan):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(fm2.Fm2Error, match=f"compile: {tmp_path / name} exists and is not a file"):
            compile(runs["fmfm"].path, tmp_path / name, plan=plan)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "folder"}
    assert (tmp_path / "pipe").is_fifo()


def test_nan_weights_are_not_compiled(runs, tmp_path):
    arrays, values = load_arrays(runs["fmfm"].path / "model.safetensors")
    arrays["model.interaction.weight"][3] = np.nan
    save_arrays(tmp_path / "model.safetensors", arrays, values)
    with pytest.raises(fm2.Fm2Error, match=r"interaction.weight has values that are not finite"):
        compile(tmp_path, tmp_path / "model.fm2")
    assert not (tmp_path / "model.fm2").exists()


def test_a_compiled_model_needs_only_numpy(runs, tmp_path):
    compile(runs["fmfm"].path, tmp_path / "model.fm2", plan="cached")
    row = planted(5, seed=3).to_dicts()[0]
    script = f"""
import sys
for name in ("torch", "polars", "pandas", "pyarrow", "safetensors", "rich", "scipy"):
    sys.modules[name] = None
import fm2
scorer = fm2.load({str(tmp_path / "model.fm2")!r})
print(scorer.predict_one({row!r}), scorer.predict([{row!r}])[0], scorer.explain({row!r}).probability)
scorer.ranker(context=["c0"]).catalog([{row!r}]).top({row!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    expected = float(runs["fmfm"].predict(planted(5, seed=3)[:1])[0])
    assert [float(value) for value in done.stdout.split()] == pytest.approx([expected] * 3, abs=1e-5)


def test_one_scorer_serves_many_threads(runs, dataset, tmp_path):
    compile(runs["fmfm"].path, tmp_path / "model.fm2", plan="cached", memory=2000)
    scorer, ids = load(tmp_path / "model.fm2", threads=1), np.tile(np.asarray(dataset.test.ids), (20, 1))
    expected = scorer.predict(ids)
    with ThreadPoolExecutor(4) as pool:
        for probabilities in pool.map(lambda _: scorer.predict(ids), range(20)):
            np.testing.assert_array_equal(probabilities, expected)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "a row has none of the model's columns"),
        ({"c0": [1, 2]}, "column 'c0': a value has the type 'list'; expected text, a number"),
        ({"c0": np.arange(3)}, "can only convert an array of size 1"),
        ("v1", "expected a row as a dict of values by column, got 'str'"),
    ],
)
def test_invalid_rows_raise_an_error(runs, tmp_path, row, message):
    compile(runs["lr"].path, tmp_path / "model.fm2")
    scorer = load(tmp_path / "model.fm2")
    with pytest.raises(fm2.Fm2Error, match=message):
        scorer.predict_one(row)
    with pytest.raises(fm2.Fm2Error, match=message):
        scorer.predict([row])


def test_unusual_values_are_unknown_or_missing(runs, tmp_path):
    compile(runs["fmfm"].path, tmp_path / "model.fm2")
    scorer = load(tmp_path / "model.fm2")
    rows = [{"c0": value, "more": 1} for value in ("strange", 7, 1.5, True, b"x", 10**30, np.int64(3), "ü" * 1000)]
    assert (scorer.encode(rows)[:, 0] == 0).all()
    missing = scorer.encode([{"c0": None}, {"c0": float("nan")}, {"c1": "v1"}])[:, 0]
    assert len(set(missing.tolist())) == 1
    for wrong in (np.zeros((2, 3), int), np.zeros((2, 4)), np.full((1, 4), -1), np.full((1, 4), 10**6), 7, None):
        with pytest.raises(fm2.Fm2Error, match="predict: "):
            scorer.predict(wrong)
