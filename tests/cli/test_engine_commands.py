"""Compiling, predicting and ranking on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentTypeError

import numpy as np
import pytest
from tests.helpers.list_models import compiled as compile_weights
from tests.helpers.list_models import make_weights
from tests.helpers.planted import LEARNED, QUICK, SCHEMA, planted

import fm2
from fm2 import Field, Fm2Error, Schema
from fm2.cli.engine import read_size
from fm2.cli.main import main
from fm2.data.presets import CRITEO_FIELD_SIZES
from fm2.engine.compile import exact_plans, write
from fm2.engine.inspect import inspect, operations
from fm2.models.paper import CRITEO_DIMS
from fm2.training.train import train


def test_a_compiled_run_predicts_and_ranks(dataset, tmp_path, capsys):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK)
    model, rows = str(tmp_path / "model.fm2"), planted(100, seed=3)
    assert main(["compile", str(run.path), "--out", model]) == 0
    printed = capsys.readouterr().out
    assert "direct" in printed
    assert "µs per row (median)" in printed
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
    expected = run.predict(rows.with_columns(c0=rows["c0"].replace_strict({}, default="v3")))
    best = np.argsort(-expected, kind="stable")[:3]
    assert [line["index"] for line in lines] == best.tolist()
    np.testing.assert_allclose([line["probability"] for line in lines], expected[best], atol=1e-5)
    assert lines[0]["candidate"] == rows.drop("click", "c0").to_dicts()[best[0]]
    assert main(command) == 0
    assert capsys.readouterr().out.count("\n") == 3
    first = (tmp_path / "ads.jsonl").read_text().splitlines()[0]
    (tmp_path / "ads.jsonl").write_text(f'{first}\n{{"cl": 1}}\n')
    assert main(command) == 1
    assert "rank: candidate 2 has none of its columns: c1, c2, c3" in capsys.readouterr().err


def test_a_compiled_model_predicts_without_torch(dataset, tmp_path):
    train("lr", dataset, tmp_path / "run", **QUICK)
    planted(10).write_csv(tmp_path / "rows.csv")
    code = """
import sys; sys.modules["torch"] = None
from fm2.cli.main import main
assert main(["compile", "run", "--out", "model.fm2"]) == 0
assert main(["predict", "model.fm2", "rows.csv", "--out", "p.txt"]) == 0
assert main(["evaluate", "model.fm2", sys.argv[1]]) == 0
"""
    subprocess.run([sys.executable, "-c", code, str(dataset.path)], cwd=tmp_path, check=True)
    assert len((tmp_path / "p.txt").read_text().split()) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rank", "{model}", "{{", "x"], "context '{' is neither JSON nor a JSON file"),
        (["rank", "{model}", "{lines}", '{{"c0": 1}}'], "rank: the context comes first, then the file of candidates"),
        (["rank", "{model}", '{{"c0": 1}}', "{lines}", "--top", "0"], "rank: --top must be at least 1, got 0"),
        (["explain", "{model}", '{{"c0": 1}}', "--top", "-1"], "explain: --top must be at least 1, got -1"),
        (["rank", "{model}", "[1]", "x"], "neither a JSON object nor a readable file"),
        (["rank", "{model}", '{{"c0": 1}}', "{model}"], "rank: cannot read"),
        (["rank", "{model}", '{{"c7": 1}}', "{lines}"], "rank: unknown column 'c7'; "),
        (["rank", "{model}", '{{"c0": 1, "c1": 2}}', "{lines}"], "line 1: column 'c1' is already in the context"),
        (["compile", "{none}", "--out", "x"], "has no trained model (model.safetensors); did you mean"),
        (["compile", "{none}/nothing", "--out", "x"], "/nothing; fm2 train writes one"),
        (["compile", "{lines}", "--out", "x"], "is a file; expected a run, the directory that fm2 train writes"),
        (["rank", "{run}", '{{"c0": 1}}', "{lines}"], "is a directory, not a file; fm2 compile turns"),
        (["predict", "{lines}", "{lines}", "--out", "x"], "not a valid compiled model: it does not start with"),
    ],
)
def test_errors_name_the_problem(dataset, tmp_path, capsys, arguments, message):
    train("lr", dataset, tmp_path / "run", **QUICK)
    main(["compile", str(tmp_path / "run"), "--out", str(tmp_path / "model.fm2")])
    (tmp_path / "lines").write_text('{"c1": "v1"}\n' * 10)
    paths = {"model": tmp_path / "model.fm2", "lines": tmp_path / "lines", "run": tmp_path / "run", "none": tmp_path}
    assert main([argument.format(**paths) for argument in arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lr", "poly2", "fm", "ffm", "fvfm"])
def test_inspect_shows_parameters_flops_and_field_sizes(dataset, tmp_path, capsys, name):
    run = train(name, dataset, tmp_path / "run", **QUICK)
    assert main(["compile", str(run.path), "--out", str(tmp_path / "model.fm2")]) == 0
    capsys.readouterr()
    for path in (run.path, tmp_path / "model.fm2"):
        assert main(["inspect", str(path), "--json"]) == 0
        inspection = json.loads(capsys.readouterr().out)
        assert inspection["parameters"] == run.model.n_parameters
        assert next(iter(inspection["flops"].values())) == run.model.flops()
        assert [field["features"] for field in inspection["fields"]] == dataset.field_sizes
    assert main(["inspect", str(tmp_path / "model.fm2")]) == 0
    assert "operations per prediction" in capsys.readouterr().out


def test_operation_counts_match_the_paper():
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


def test_inspect_counts_the_operations_of_the_compiled_order(tmp_path):
    """Ordered by size, a pair costs the dimension of its larger field, whatever that of the other one is."""
    weights = make_weights("fmfm", [8, 2, 4], [40, 3, 9], lists=[])
    counts = {}
    for plan in exact_plans(weights, "cached"):
        counts |= inspect(write(weights, [plan], tmp_path / "model.fm2").path)["flops"]
    assert counts["cached"] == counts["cached by dimension"] == (2 * 2 + 1) * 2 + (2 * 4 + 1) + 3
    assert counts["cached by size"] == (2 * 8 + 1) * 2 + (2 * 4 + 1) + 3


def test_the_paper_order_has_fewer_operations_than_the_order_by_size():
    config = {"field_sizes": list(CRITEO_FIELD_SIZES), "dims": list(CRITEO_DIMS), "model": "fmfm", "linear": "features"}
    by_size = sorted(range(39), key=lambda field: -CRITEO_FIELD_SIZES[field])
    counts = operations(config, "cached by size, 100% of the features", by_size)
    assert (counts["cached"], counts["cached by size"]) == (8960, 14480)


def test_a_compiled_model_has_the_same_scores_as_its_run(dataset, tmp_path, capsys):
    """On its own dataset, and on a newer one whose values have other ids and are partly unknown."""
    run = train("fmfm", dataset, tmp_path / "run", **QUICK)
    fm2.compile(run.path, tmp_path / "model.fm2", plan="direct")
    later = planted(400, seed=5, values=15).reverse()
    fm2.prepare(later, SCHEMA, tmp_path / "later", fractions=(0.5, 0, 0.5))
    for data in (str(dataset.path), str(tmp_path / "later")):
        outputs = []
        for model in (run.path, tmp_path / "model.fm2"):
            assert main(["evaluate", str(model), data, "--json"]) == 0
            captured = capsys.readouterr()
            outputs.append((json.loads(captured.out), captured.err))
        (expected, expected_warning), (metrics, warning) = outputs
        assert metrics == pytest.approx(expected, abs=1e-6)
        assert warning == expected_warning
        assert fm2.load(tmp_path / "model.fm2").evaluate(data) == metrics
    assert "was not prepared with --like" in warning
    assert main(["evaluate", str(tmp_path / "model.fm2"), str(tmp_path / "later"), "--split", "validation"]) == 1
    assert "has no rows in the split 'validation'" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--data", "{data}"], ["--data", "{later}"]])
def test_a_truncated_spectrum_reports_its_error(dataset, tmp_path, capsys, options):
    run = train("fmfm", dataset, tmp_path / "run", **LEARNED, dim=3)
    fm2.prepare(planted(400, seed=5).reverse(), SCHEMA, tmp_path / "later", fractions=(1, 0, 0))
    paths = {"data": dataset.path, "later": tmp_path / "later"}
    command = ["compile", str(run.path), "--out", str(tmp_path / "m.fm2"), "--plan", "spectral"]
    command += [option.format(**paths) for option in options]
    lost = {}
    for rank in (1, 4, 12):
        assert main([*command, "--rank", str(rank), "--json"]) == 0
        lost[rank] = json.loads(capsys.readouterr().out)["logit_error"]
        assert lost[rank]["rms"] <= lost[rank]["max"]
    assert lost[1]["rms"] > lost[4]["rms"] > 1e-3
    assert lost[12]["max"] < 1e-5
    assert main([*command, "--rank", "4"]) == 0
    assert f"approximation error of the logits: {lost[4]['rms']:.2g} (root mean square)" in capsys.readouterr().out


def test_what_a_cut_lost_is_what_its_probabilities_show(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK, dim=3)
    ids = np.asarray(dataset.validation.ids)
    cut = fm2.compile(run.path, tmp_path / "m.fm2", plan="spectral", rank=3, data=dataset)
    assert len(ids) < 5000
    far = fm2.load(cut.path).logits(ids) - run.logits(ids)
    assert cut.logit_error["rms"] == pytest.approx(np.sqrt(np.mean(far**2)), rel=1e-4)
    assert cut.logit_error["max"] == pytest.approx(np.abs(far).max(), rel=1e-4)


def test_a_dataset_with_other_fields_is_an_error(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK, dim=3)
    other = planted(300).rename({"c3": "c9"})
    schema = Schema([Field(name, min_count=1) for name in ("c0", "c1", "c2", "c9")], label="click")
    data = fm2.prepare(other, schema, tmp_path / "other")
    with pytest.raises(Fm2Error, match="has other fields than the model in"):
        fm2.compile(run.path, tmp_path / "m.fm2", plan="spectral", rank=3, data=data)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_inspect_shows_the_number_type(dataset, tmp_path, capsys, dtype):
    run = train("fm", dataset, tmp_path / "run", **QUICK, dim=3)
    fm2.compile(run.path, tmp_path / "m.fm2", dtype=dtype)
    assert main(["inspect", str(tmp_path / "m.fm2")]) == 0
    assert f"plan: sum of embeddings, numbers: {dtype}" in capsys.readouterr().out
    assert fm2.load(tmp_path / "m.fm2").dtype == dtype


@pytest.mark.parametrize("command", ["compile", "export", "predict", "report"])
def test_only_files_of_the_same_kind_are_replaced(dataset, tmp_path, capsys, command):
    run, out = train("lr", dataset, tmp_path / "run", **QUICK), tmp_path / "out"
    planted(20).write_csv(tmp_path / "rows.csv")
    words = [command, str(run.path), *([str(tmp_path / "rows.csv")] if command == "predict" else []), "--out"]
    for text in ("a log\t1\n", "1,2\n", "12\n"):
        out.write_text(text)
        assert main([*words, str(out)]) == 1
        assert f"{command}: {out} already exists and is not an earlier " in capsys.readouterr().err
        assert out.read_text() == text
    out.write_text("")
    for replaced in (False, True):
        assert main([*words, str(out)]) == 0
        assert (" (replaced the earlier file)" in capsys.readouterr().out) == replaced
    if command == "predict":
        for _ in range(2):
            assert main([*words, str(tmp_path / "p.npy")]) == 0


def test_sizes_are_parsed():
    sizes = {"2GB": 2e9, "1.5GB": 1.5e9, "300 MB": 3e8, "12": 12}
    assert {text: read_size(text) for text in sizes} == sizes
    with pytest.raises(ArgumentTypeError, match="expected a size like 500MB or 2GB, got '2 apples'"):
        read_size("2 apples")


def test_explain_shows_fields_pairs_and_values(tmp_path, capsys):
    weights = make_weights("fmfm", [4, 9, 3], [7, 30, 5], [1])
    scorer = compile_weights(weights, tmp_path, "cached")
    row = {"f0": "v1", "f1": "v3|v0", "f2": None}
    expected = scorer.explain(row)
    command = ["explain", str(scorer.path), json.dumps(row), "--top", "2"]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["logit"] == expected.logit
    assert list(printed["largest"].items()) == expected.largest(2)
    assert [value["value"] for value in printed["values"]["f1"]] == ["v3", "v0"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"probability {expected.probability:.6f}, logit {expected.logit:.4f}")
    labels = {"f0": "f0 (v1)", "f1": "f1", "f2": "f2 (missing)", "f0 × f1": "f0 (v1) × f1"}
    labels |= {"f0 × f2": "f0 (v1) × f2 (missing)", "f1 × f2": "f1 × f2 (missing)"}
    largest = expected.largest(2)
    assert lines[2:4] == [f"{term:>10.4f}  {labels[name]}" for name, term in largest]
    others = expected.logit - expected.bias - largest[0][1] - largest[1][1]
    assert lines[4] == f"{others:>10.4f}  4 other contributions"
    assert printed["others"] == {"count": 4, "sum": pytest.approx(others)}
    assert printed["row"] == {"f0": "v1", "f2": None}
    assert lines[-1].split() == [
        "0.5000",
        *(f"{expected.values['f1'][1].linear:.4f} {expected.values['f1'][1].pairs:.4f} v0").split(),
    ]
    assert main([*command[:3], "--top", "9"]) == 0
    assert "other contributions" not in capsys.readouterr().out
    assert main(["explain", str(scorer.path), json.dumps({"f0": "new"})]) == 0
    assert "f0 (<unknown>)" in capsys.readouterr().out
    assert main(["explain", str(scorer.path), "[1]"]) == 1
    assert "explain: row '[1]' is neither a JSON object nor a readable file" in capsys.readouterr().err
