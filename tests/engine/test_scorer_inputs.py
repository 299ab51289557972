"""What a compiled model is given, and what ``fm2.compile`` is asked for: understood, or refused in clear words."""

from __future__ import annotations

import json
from collections import UserDict
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.engine.test_hostile_models import with_section
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
def test_a_single_value_is_no_column(scorer, value):
    with pytest.raises(Fm2Error, match="the column 'c0' is a single value; one row is a list of one dict"):
        scorer.predict({"c0": value, "c1": value})


def test_a_dict_without_columns_is_told(scorer):
    with pytest.raises(Fm2Error, match="predict: there are no columns"):
        scorer.predict({})
    with pytest.raises(Fm2Error, match="the columns are not equally long"):
        scorer.predict({"c0": ["v1"], "c1": ["v1", "v2"]})


def test_any_mapping_is_a_row(scorer):
    row = planted(3, seed=3).to_dicts()[1]
    expected = scorer.predict_one(row)
    for kind in (MappingProxyType, UserDict):
        assert scorer.predict_one(kind(row)) == expected
        assert scorer.predict([row, kind(row)]).tolist() == scorer.predict([row, row]).tolist()
        assert scorer.explain(kind(row)).logit == scorer.explain(row).logit


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT])
def test_pandas_own_missing_values_are_missing(scorer, missing):
    row = planted(3, seed=3).to_dicts()[1]
    assert scorer.predict_one({**row, "c1": missing}) == scorer.predict_one({**row, "c1": None})
    np.testing.assert_array_equal(scorer.encode([{**row, "c1": missing}]), scorer.encode([{**row, "c1": None}]))


def test_only_rows_are_timed(scorer, dataset):
    assert (scorer.time(np.asarray(dataset.test.ids[:5])) > 0).all()
    for wrong in (np.zeros(4, np.int32), np.zeros((2, 3), np.int32), np.full((1, 4), 10**6, np.int32)):
        with pytest.raises(Fm2Error, match="predict: "):
            scorer.time(wrong)


@pytest.mark.parametrize(("logit", "probability"), [(-800.0, 0.0), (800.0, 1.0)])
def test_a_far_logit_has_a_probability(logit, probability):
    assert Explanation(logit, {}, {}).probability == probability


CHANGES = {
    "no model": lambda meta: meta.pop("model"),
    "no plan": lambda meta: meta.pop("plan"),
    "a plan that is none": lambda meta: meta.update(plan=["direct"]),
    "a plan without end": lambda meta: meta.update(plan="spectral, rank " + "9" * 5000),
    "no times": lambda meta: meta.pop("measured"),
    "a list for a model": lambda meta: meta.update(model=[]),
    "an unknown model": lambda meta: meta["model"].update(model="gbdt"),
    "a model that is none": lambda meta: meta["model"].update(model=["fm"]),
    "a network": lambda meta: meta["model"].update(model="deepfm"),
    "no sizes": lambda meta: meta["model"].update(field_sizes=[]),
    "other sizes": lambda meta: meta["model"].update(field_sizes=[3, 3, 3, 3]),
    "no dims": lambda meta: meta["model"].pop("dims"),
    "few dims": lambda meta: meta["model"].update(dims=[3]),
    "dims that are texts": lambda meta: meta["model"].update(dims=["3"] * 4),
    "dims that differ in an fm": lambda meta: meta["model"].update(model="fm", dims=[1, 2, 3, 4]),
    "no linear part": lambda meta: meta["model"].pop("linear"),
    "pairs that are none": lambda meta: meta["model"].update(pruned=[[0, 1, 2]]),
    "a pair beyond the fields": lambda meta: meta["model"].update(pruned=[[0, 4]]),
    "a pair twice": lambda meta: meta["model"].update(pruned=[[0, 1], [0, 1]]),
    "signs of an fmfm": lambda meta: meta["model"].update(signs=[1, 1, 1]),
    "no hash bits": lambda meta: meta.update(model={"model": "poly2", "field_sizes": meta["model"]["field_sizes"]}),
    "no dim": lambda meta: meta.update(model={"model": "ffm", "field_sizes": meta["model"]["field_sizes"]}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_description_that_fits_no_model_is_refused(scorer, write, capsys, change):
    meta = json.loads(json.dumps(scorer.meta))
    CHANGES[change](meta)
    crafted = write("model.fm2", with_section(scorer.path.read_bytes(), b"meta", json.dumps(meta).encode()))
    with pytest.raises(Fm2Error, match="is no model that can be used: its description has no"):
        inspect(crafted)
    assert main(["inspect", str(crafted)]) == 1
    assert "is no model that can be used" in capsys.readouterr().err


def test_a_directory_that_cannot_be_written_to_is_named(run, tmp_path, capsys):
    (tmp_path / "file").touch()
    for place in ("missing", "file"):
        assert main(["compile", str(run.path), "--out", str(tmp_path / place / "m.fm2")]) == 1
        assert f"compile: cannot write to {tmp_path / place}: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lr", "ffm"])
def test_what_has_no_field_matrices_has_no_spectral_plan(dataset, tmp_path, name):
    other = train(name, dataset, tmp_path / "run", **QUICK)
    for data in (None, dataset):
        with pytest.raises(Fm2Error, match=f"{name} has no field matrices; fm, fwfm, fvfm, fmfm have them"):
            fm2.compile(other.path, tmp_path / "m.fm2", plan="spectral", data=data)


def test_options_of_another_plan_are_refused(run, dataset, tmp_path, capsys):
    command = ["compile", str(run.path), "--out", str(tmp_path / "m.fm2")]
    assert main([*command, "--rank", "8"]) == 1
    assert "the rank is for the plan spectral, and the plan is auto" in capsys.readouterr().err
    assert main([*command, "--plan", "cached", "--data", str(dataset.path)]) == 1
    assert "the data is for the plan spectral, and the plan is cached" in capsys.readouterr().err
    assert main([*command, "--plan", "spectral", "--rank", "8", "--data", str(dataset.path)]) == 0
    with pytest.raises(Fm2Error, match="the memory is nan bytes; it is 0 or more"):
        fm2.compile(run.path, tmp_path / "m.fm2", memory=float("nan"))


@pytest.mark.parametrize("scale", [0, 1])  # without any variance, and with what rounding makes
@pytest.mark.parametrize("moments", ["guessed", "measured"])
def test_a_spectrum_of_rows_that_are_all_alike_is_exact_there(run, dataset, moments, scale):
    weights = read_weights(run.path)
    for table in weights.embeddings:
        table[:] = table[1] * scale
    ids = np.asarray(dataset.train.ids[:100])
    found = spectrum.cut(weights, 2, spectrum.measure_moments(weights, ids) if moments == "measured" else None)
    v = np.concatenate([table[0] for table in weights.embeddings])
    expected = v @ spectrum.block_matrix(weights) @ v / 2
    vectors = np.concatenate([table[:1] @ own for table, own in zip(weights.embeddings, found.vectors, strict=True)])
    pairs = (vectors.sum(0) ** 2 - (vectors**2).sum(0)) @ found.signs / 2
    slopes = v @ np.concatenate(found.slopes)
    assert np.isfinite(vectors).all()
    assert pairs + slopes + found.constant == pytest.approx(expected, abs=1e-5)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Give a trained and a compiled model of fields of every kind."""
    place = tmp_path_factory.mktemp("both")
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
    data = fm2.prepare(table, fm2.Schema(fields, "y"), place / "data", fractions=(1, 0, 0), validation=table)
    run = train("lr", data, place / "run", **QUICK)
    return run, fm2.load(fm2.compile(run.path, place / "model.fm2").path)


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
def test_trained_and_compiled_models_read_dicts_alike(both, rows):
    run, scorer = both
    np.testing.assert_array_equal(run.encoder.encode(rows), scorer.encode(rows))
    columns = {name: [row.get(name) for row in rows] for name in ("site", "price", "time")}
    np.testing.assert_array_equal(run.encoder.encode(columns), scorer.encode(columns))
    np.testing.assert_allclose(run.predict(rows), scorer.predict(rows), atol=1e-6)


@pytest.mark.parametrize("others", [[], ["a", True]])
def test_a_number_of_a_dict_reads_as_it_would_in_a_table(both, others):
    encoder = both[0].encoder
    ids = encoder.encode([{"site": value} for value in [1e5, 0.25, 3.0, *others]])[:, 0]
    assert encoder.decode(ids[:, None].repeat(4, axis=1))["site"][:3] == ["100000", "0.25", "3"]


def test_trained_and_compiled_models_take_the_same_forms(both):
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
        ([{"site": [1, 2]}], "'list', which no field can be"),
        ([{"site": "a"}, "b"], "a row is a dict of values by column, not 'str'"),
        ([{"site": "\ud800"}], "surrogates not allowed"),
        ({"site": "a"}, "the column 'site' is a single value"),
        ({"site": ["a"], "price": []}, "the columns are not equally long"),
        (np.zeros((2, 3)), r"ids are whole numbers, rows × fields, not float64 \[2, 3\]"),
        (7, "rows are dicts, a table, or an array of ids, not int"),
    ],
)
def test_trained_and_compiled_models_refuse_the_same(both, rows, message):
    for model in both:
        with pytest.raises(Fm2Error, match=message):
            model.predict(rows)
