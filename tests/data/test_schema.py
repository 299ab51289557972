"""Schemas: what they accept, what they say when they do not, and what inference suggests."""

from __future__ import annotations

import datetime

import polars as pl
import pytest

from fm2 import Field, Fm2Error, Schema


def test_a_schema_survives_its_toml_file(tmp_path):
    schema = Schema(
        [
            Field("site", min_count=3),
            Field("user", hash_bits=12),
            Field("price", "numeric", transform="quantiles", buckets=7),
            Field("count", "numeric", column="n"),
            Field("time", "timestamp", format="%y%m%d%H"),
            Field('odd "name" \\ ü\t', column="ß"),
        ],
        label="click",
        missing=["\\N", "NA"],
    )
    schema.save(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml") == schema


def test_presets_are_the_papers():
    criteo, avazu = Schema.preset("criteo"), Schema.preset("avazu")
    assert len(criteo.fields) == 39
    assert sum(field.kind == "numeric" for field in criteo.fields) == 13
    assert {field.min_count for field in criteo.fields} == {8}
    assert len(avazu.fields) == 23
    assert {field.min_count for field in avazu.fields} == {5}
    assert "id" not in avazu.source_columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "has no name"),
        ({"name": "a", "kind": "number"}, "kind 'number'; it is one of categorical, numeric, timestamp"),
        ({"name": "a", "transform": "quantiles"}, "only numeric fields"),
        ({"name": "a", "kind": "numeric", "transform": "square"}, "one of log_square, quantiles"),
        ({"name": "a", "kind": "numeric", "buckets": 5}, "buckets, which belong"),
        ({"name": "a", "kind": "numeric", "transform": "quantiles", "buckets": 1}, "2 to 100000"),
        ({"name": "a", "part": "hour"}, "only timestamp fields"),
        ({"name": "a", "kind": "timestamp", "part": "year"}, "one of weekday, hour"),
        ({"name": "a", "min_count": 0}, "1 keeps every value"),
        ({"name": "a", "hash_bits": 31}, "1 to 30"),
        ({"name": "a", "kind": "numeric", "hash_bits": 3}, "not categorical"),
        ({"name": "a", "kind": "timestamp", "part": "hour", "format": "%Q"}, "%Y %y %m %d"),
    ],
)
def test_a_wrong_field_is_refused_by_name(arguments, message):
    with pytest.raises(Fm2Error, match=message):
        Field(**arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = 'y'", "no fields"),
        ("[[field]]\nname = 'a'", "no label"),
        ("label = 'y'\n[[field]]\nname = 'a'\n[[field]]\nname = 'a'", "two fields are called 'a'"),
        ("label = 'a'\n[[field]]\nname = 'a'", "reads the label's column"),
        ("label = 'y'\ncolumns = ['y']\n[[field]]\nname = 'a'", "column 'a' is not among"),
        ("label = 'y'\n[[field]]\nname = 'a'\ncolor = 1", "field 'a' has 'color'"),
        ("labels = 'y'", "'labels' is not a setting"),
        ("label = 'y'\nfield = 3", "wrong type"),
        (
            "label = 'y'\n[[field]]\nname = 'a'\nmin_count = 'many'",
            "field 'a' has min_count 'many', which is not a whole number",
        ),
        ("label = 'y'\nmissing = 'NA'\n[[field]]\nname = 'a'", "missing is 'NA'; it is a list of texts"),
        ("label = 'y'\n[field]\nname = 'a'", r"write \[\[field\]\], twice the brackets"),
        ("label = 'y'\n[[field]]\nkind = 'numeric'", "a field has no name"),
        ("label = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(write, text, message):
    path = write("schema.toml", text)
    with pytest.raises(Fm2Error, match=message) as error:
        Schema.load(path)
    assert str(path) in str(error.value)


def test_inference_tells_quantities_times_and_categories_apart(write):
    rows = [f"{i % 2},{i * 37},{i / 7:.3f},{i % 5},2024-01-0{1 + i % 9} 10:00:00,u{i},{i + 1000},\n" for i in range(60)]
    path = write("log.csv", "click,count,price,slot,when,user,item_id,empty\n" + "".join(rows))
    schema = Schema.infer(path, label="click")
    kinds = {field.name: field.transform or field.kind for field in schema.fields}
    assert kinds == {
        "count": "log_square",
        "price": "quantiles",
        "slot": "categorical",
        "when_weekday": "timestamp",
        "when_hour": "timestamp",
        "user": "categorical",
        "item_id": "categorical",
        "empty": "categorical",
    }


def test_inference_reads_frames_and_libffm(write):
    frame = pl.DataFrame(
        {"y": [0, 1], "t": [datetime.datetime(2024, 5, 1), None], "c": pl.Series(["a", "b"], dtype=pl.Categorical)}
    )
    assert [field.kind for field in Schema.infer(frame, label="y").fields] == ["timestamp", "timestamp", "categorical"]
    libffm = write("log.ffm", "1 0:3:1 2:5:1\n0 1:9:1 10:1:1\n")
    assert Schema.infer(libffm, label="label").names == ("0", "1", "2", "10")


def test_inference_names_a_missing_label(write):
    with pytest.raises(Fm2Error, match="has no column 'clicked'; did you mean 'click'"):
        Schema.infer(write("log.csv", "click,a\n1,2\n"), label="clicked")
    with pytest.raises(Fm2Error, match="has no column 'label'; it has 'click', 'a'"):
        Schema.infer(write("log.csv", "click,a\n1,2\n"), label="label")
