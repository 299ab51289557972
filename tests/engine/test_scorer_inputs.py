"""Inputs of compiled models and options of ``fm2.compile``: accepted, or rejected with a clear message."""

from __future__ import annotations

import itertools
import json
from collections import UserDict
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.helpers.hostile import with_section
from tests.helpers.planted import QUICK, planted

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.compression import spectrum
from fm2.compression.weights import read_weights
from fm2.engine.explanation import Explanation
from fm2.engine.inspect import inspect
from fm2.training.train import train


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return train("fmfm", dataset, tmp_path_factory.mktemp("inputs") / "run", **QUICK, dim=3)


@pytest.fixture(scope="module")
def scorer(run, tmp_path_factory):
    return fm2.load(fm2.compile(run.path, tmp_path_factory.mktemp("scorer") / "model.fm2", plan="direct").path)


@pytest.mark.parametrize("value", ["v1", b"v1", 7, 1.5, None, np.float32(2), np.array("v1")])
def test_a_column_must_not_be_a_single_value(scorer, value):
    with pytest.raises(Fm2Error, match="column 'c0' is a single value; pass one row as a list of one dict"):
        scorer.predict({"c0": value, "c1": value})


def test_columns_must_exist_and_have_equal_lengths(scorer):
    with pytest.raises(Fm2Error, match="predict: there are no columns"):
        scorer.predict({})
    with pytest.raises(Fm2Error, match="the columns differ in length"):
        scorer.predict({"c0": ["v1"], "c1": ["v1", "v2"]})


def test_the_columns_of_a_table_must_exist_and_contain_single_values(scorer):
    table = planted(3, seed=3)
    with pytest.raises(Fm2Error, match="predict: the table has no column 'c1'"):
        scorer.predict(table.drop("c1"))
    with pytest.raises(Fm2Error, match="predict: column 'c1' contains nested lists; a cell must be a list of values"):
        scorer.predict(table.with_columns(c1=[["v1"], ["v2"], []]))


def test_a_row_may_be_any_mapping(scorer):
    row = planted(3, seed=3).to_dicts()[1]
    expected = scorer.predict_one(row)
    for kind in (MappingProxyType, UserDict):
        assert scorer.predict_one(kind(row)) == expected
        assert scorer.predict([row, kind(row)]).tolist() == scorer.predict([row, row]).tolist()
        assert scorer.explain(kind(row)).logit == scorer.explain(row).logit


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT])
def test_missing_values_of_pandas_are_missing(scorer, missing):
    row = planted(3, seed=3).to_dicts()[1]
    assert scorer.predict_one({**row, "c1": missing}) == scorer.predict_one({**row, "c1": None})
    np.testing.assert_array_equal(scorer.encode([{**row, "c1": missing}]), scorer.encode([{**row, "c1": None}]))


def test_latency_is_measured_for_valid_rows_only(scorer, dataset):
    assert (scorer.measure_latency(np.asarray(dataset.test.ids[:5])) > 0).all()
    for wrong in (np.zeros(4, np.int32), np.zeros((2, 3), np.int32), np.full((1, 4), 10**6, np.int32)):
        with pytest.raises(Fm2Error, match="predict: "):
            scorer.measure_latency(wrong)


@pytest.mark.parametrize(("logit", "probability"), [(-800.0, 0.0), (800.0, 1.0)])
def test_extreme_logits_have_probabilities(logit, probability):
    assert Explanation(logit, {}, {}).probability == probability


CHANGES = {
    "no model": lambda meta: meta.pop("model"),
    "no plan": lambda meta: meta.pop("plan"),
    "a plan that is a list": lambda meta: meta.update(plan=["direct"]),
    "a very long plan": lambda meta: meta.update(plan="spectral, rank " + "9" * 5000),
    "a negative rate of zero": lambda meta: meta.update(negative_rate=0),
    "a negative rate that is a string": lambda meta: meta.update(negative_rate="0.1"),
    "no latencies": lambda meta: meta.pop("measured"),
    "a model that is a list": lambda meta: meta.update(model=[]),
    "an unknown model": lambda meta: meta["model"].update(model="gbdt"),
    "a model name that is a list": lambda meta: meta["model"].update(model=["fm"]),
    "a network": lambda meta: meta["model"].update(model="deepfm"),
    "no sizes": lambda meta: meta["model"].update(field_sizes=[]),
    "other sizes": lambda meta: meta["model"].update(field_sizes=[3, 3, 3, 3]),
    "no dims": lambda meta: meta["model"].pop("dims"),
    "few dims": lambda meta: meta["model"].update(dims=[3]),
    "dims that are strings": lambda meta: meta["model"].update(dims=["3"] * 4),
    "different dims in an fm": lambda meta: meta["model"].update(model="fm", dims=[1, 2, 3, 4]),
    "no linear part": lambda meta: meta["model"].pop("linear"),
    "a pruned triple": lambda meta: meta["model"].update(pruned=[[0, 1, 2]]),
    "a pair of an unknown field": lambda meta: meta["model"].update(pruned=[[0, 4]]),
    "a repeated pair": lambda meta: meta["model"].update(pruned=[[0, 1], [0, 1]]),
    "signs in an fmfm": lambda meta: meta["model"].update(signs=[1, 1, 1]),
    "dims in an lr": lambda meta: meta["model"].update(model="lr"),
    "null dims in an lr": lambda meta: meta["model"].update(model="lr", dims=None),
    "null pruned pairs": lambda meta: meta["model"].update(pruned=None),
    "no hash bits": lambda meta: meta.update(model={"model": "poly2", "field_sizes": meta["model"]["field_sizes"]}),
    "no dim": lambda meta: meta.update(model={"model": "ffm", "field_sizes": meta["model"]["field_sizes"]}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_metadata_that_does_not_match_the_model_is_rejected(scorer, write, capsys, change):
    meta = json.loads(json.dumps(scorer.meta))
    CHANGES[change](meta)
    crafted = write("model.fm2", with_section(scorer.path.read_bytes(), b"meta", json.dumps(meta).encode()))
    with pytest.raises(Fm2Error, match=r"not a valid compiled model: missing or invalid .* in its metadata"):
        inspect(crafted)
    assert main(["inspect", str(crafted)]) == 1
    assert "not a valid compiled model" in capsys.readouterr().err


def test_the_error_names_a_directory_that_cannot_be_written_to(run, tmp_path, capsys):
    (tmp_path / "file").touch()
    for name, plan in itertools.product(("missing", "file"), ("auto", "direct")):
        assert main(["compile", str(run.path), "--out", str(tmp_path / name / "m.fm2"), "--plan", plan]) == 1
        assert f"compile: cannot write to {tmp_path / name}: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lr", "ffm"])
def test_the_spectral_plan_requires_field_matrices(dataset, tmp_path, name):
    other = train(name, dataset, tmp_path / "run", **QUICK)
    for data in (None, dataset):
        with pytest.raises(Fm2Error, match=f"expected fm, fwfm, fvfm, fmfm, got {name}, which has no field matrices"):
            fm2.compile(other.path, tmp_path / "m.fm2", plan="spectral", data=data)


def test_options_of_other_plans_are_rejected(run, dataset, tmp_path, capsys):
    command = ["compile", str(run.path), "--out", str(tmp_path / "m.fm2")]
    assert main([*command, "--rank", "8"]) == 1
    assert "compile: rank requires the plan spectral, got auto" in capsys.readouterr().err
    with pytest.raises(Fm2Error, match="compile: rank requires the plan spectral, got auto"):
        fm2.compile(run.path, tmp_path / "m.fm2", rank=8)
    assert main([*command, "--plan", "cached", "--data", str(dataset.path)]) == 1
    assert "compile: data requires the plan spectral, got cached" in capsys.readouterr().err
    assert main([*command, "--plan", "spectral", "--rank", "8", "--data", str(dataset.path)]) == 0
    with pytest.raises(Fm2Error, match="compile: memory must be 0 or more bytes, got nan"):
        fm2.compile(run.path, tmp_path / "m.fm2", memory=float("nan"))


@pytest.mark.parametrize("scale", [0, 1])  # without variance, and with rounding errors only
@pytest.mark.parametrize("moments", ["guessed", "measured"])
def test_the_spectrum_is_exact_if_all_rows_are_equal(run, dataset, moments, scale):
    weights = read_weights(run.path)
    for table in weights.embeddings:
        table[:] = table[1] * scale
    rows = dataset.train.encoded[:100]
    approximation = spectrum.cut(weights, 2, spectrum.measure_moments(weights, rows) if moments == "measured" else None)
    v = np.concatenate([table[0] for table in weights.embeddings])
    expected = v @ spectrum.block_matrix(weights) @ v / 2
    vectors = np.concatenate(
        [table[:1] @ part for table, part in zip(weights.embeddings, approximation.vectors, strict=True)]
    )
    pairs = (vectors.sum(0) ** 2 - (vectors**2).sum(0)) @ approximation.signs / 2
    slopes = v @ np.concatenate(approximation.slopes)
    assert np.isfinite(vectors).all()
    assert pairs + slopes + approximation.constant == pytest.approx(expected, abs=1e-5)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Return a trained and a compiled model with fields of every type."""
    folder = tmp_path_factory.mktemp("both")
    values = ["a", "3", "true", "100000", "0.25", "", "7"] * 30
    table = pl.DataFrame(
        {
            "y": [0, 1, 1] * 70,
            "site": values,
            "price": [1.5, 20.0, None, 4.0, 1e6, 0.0, 7.0] * 30,
            "time": [datetime(2024, 1, day % 28 + 1, day % 24) for day in range(210)],
        }
    )
    fields = [fm2.Field("site"), fm2.Field("price", "numeric"), fm2.Field("time", "timestamp")]
    data = fm2.prepare(table, fm2.Schema(fields, "y"), folder / "data", fractions=(1, 0, 0), validation=table)
    run = train("lr", data, folder / "run", **QUICK)
    return run, fm2.load(fm2.compile(run.path, folder / "model.fm2").path)


ROWS = [
    {"site": "a", "price": 20.0, "time": datetime(2024, 1, 3, 5)},
    {"site": 3, "price": 20, "more": object()},
    {"site": True, "price": "4", "time": "2024-01-03 05:00:00"},
    {"site": 1e5, "price": float("nan"), "time": datetime(2024, 1, 3, 5, tzinfo=UTC)},
    {"site": 0.25, "price": None, "time": pd.Timestamp("2024-01-03 05:00:00")},
    {"site": b"7", "price": np.float64(7), "time": pd.NaT},
    {"site": np.int64(7), "price": "strange"},
    {"site": pd.NA, "price": 10**30},
    {"price": 7},
    {"site": "new", "price": -1.0, "time": "never"},
]


@pytest.mark.parametrize("rows", [ROWS, *([row] for row in ROWS), ROWS[:1] * 3, []])
def test_trained_and_compiled_models_encode_dicts_equally(both, rows):
    run, scorer = both
    np.testing.assert_array_equal(run.encoder.encode(rows), scorer.encode(rows))
    columns = {name: [row.get(name) for row in rows] for name in ("site", "price", "time")}
    np.testing.assert_array_equal(run.encoder.encode(columns), scorer.encode(columns))
    np.testing.assert_allclose(run.predict(rows), scorer.predict(rows), atol=1e-6)


@pytest.mark.parametrize("others", [[], ["a", True]])
def test_numbers_in_dicts_are_encoded_as_in_tables(both, others):
    encoder = both[0].encoder
    ids = encoder.encode([{"site": value} for value in [1e5, 0.25, 3.0, *others]])[:, 0]
    assert encoder.decode(ids[:, None].repeat(4, axis=1))["site"][:3] == ["100000", "0.25", "3"]


def test_trained_and_compiled_models_accept_the_same_inputs(both):
    run, scorer = both
    table = pl.DataFrame({"site": ["a", "3", None], "price": [1.5, None, 7.0], "time": [datetime(2024, 1, 3, 5)] * 3})
    expected = scorer.predict(table)
    forms = [table, table.lazy(), table.to_pandas(), table.to_arrow(), table.to_dicts(), tuple(table.to_dicts())]
    columns = [
        table.to_dict(as_series=False),
        table.to_dict(),
        {name: table[name].to_numpy() for name in table.columns},
    ]
    objects = {name: table[name].to_pandas().astype(object) for name in table.columns}
    for rows in (*forms, *columns, objects, scorer.encode(table)):
        for model in (run, scorer):
            np.testing.assert_allclose(model.predict(rows), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"site": "a"}, {}], "a row has none of the model's columns"),
        ({"sight": ["a"]}, "a row has none of the model's columns"),
        ([{"site": [1, 2]}], "column 'site': a value has the type 'list'; expected text, a number"),
        ([{"site": "a"}, "b"], "expected a row as a dict of values by column, got 'str'"),
        ([{"site": "\ud800"}], "surrogates not allowed"),
        ({"site": "a"}, "column 'site' is a single value"),
        ({"site": ["a"], "price": []}, "the columns differ in length"),
        (np.zeros((2, 3)), r"ids must be integers of shape rows × fields, got float64 \[2, 3\]"),
        (7, "rows must be dicts, a dict of columns, a DataFrame or an array of ids, got int"),
    ],
)
def test_trained_and_compiled_models_reject_the_same_inputs(both, rows, message):
    for model in both:
        with pytest.raises(Fm2Error, match=message):
            model.predict(rows)


def test_a_row_that_cannot_be_read_is_named(run, tmp_path):
    fm2.compile(run.path, tmp_path / "model.fm2")
    scorer = fm2.load(tmp_path / "model.fm2")
    good = dict.fromkeys(scorer.columns, "1")
    bad = {**good, "c1": {"a": 1}}
    with pytest.raises(Fm2Error, match="predict: row 2: column 'c1': a value has the type 'dict'; expected text"):
        scorer.predict([good, good, bad])
    ranker = scorer.ranker(context=scorer.columns[:1])
    with pytest.raises(Fm2Error, match="rank: row 1: column 'c1'"):
        ranker.rank({scorer.columns[0]: "1"}, [{"c1": "1"}, {"c1": {"a": 1}}], top=1)
