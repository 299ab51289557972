"""Schemas: validation, TOML files, presets and inference."""

from __future__ import annotations

import datetime
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fm2
from fm2 import Field, Fm2Error, Fm2Warning, Schema, prepare
from fm2.cli.main import main
from fm2.data.description import describe
from fm2.data.presets import paper_schema
from fm2.field import DEFAULT_MIN_COUNT


def test_a_schema_is_unchanged_after_saving_and_loading(tmp_path):
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


def test_paper_schemas_match_the_paper():
    criteo, avazu = paper_schema("criteo"), paper_schema("avazu")
    assert len(criteo.fields) == 39
    assert sum(field.kind == "numeric" for field in criteo.fields) == 13
    assert {field.min_count for field in criteo.fields} == {8}
    assert len(avazu.fields) == 23
    assert {field.min_count for field in avazu.fields} == {5}
    assert "id" not in avazu.source_columns


@pytest.mark.parametrize("name", ["criteo", "avazu"])
def test_presets_have_the_default_threshold(name):
    preset, paper = Schema.preset(name), paper_schema(name)
    assert {field.min_count for field in preset.fields} == {DEFAULT_MIN_COUNT}
    assert preset.with_min_count(paper.fields[0].min_count) == paper


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "has no name"),
        ({"name": "a", "kind": "number"}, "unknown kind 'number'; choose one of categorical, numeric, timestamp"),
        ({"name": "a", "transform": "quantiles"}, "transform requires a numeric field, but the field is categorical"),
        (
            {"name": "a", "kind": "numeric", "transform": "square"},
            "unknown transform 'square'; choose one of log_square, quantiles",
        ),
        ({"name": "a", "kind": "numeric", "buckets": 5}, "buckets requires the transform 'quantiles'"),
        (
            {"name": "a", "kind": "numeric", "transform": "quantiles", "buckets": 1},
            "buckets must be between 2 and 100000, got 1",
        ),
        ({"name": "a", "part": "hour"}, "part and format require a timestamp field"),
        ({"name": "a", "kind": "timestamp", "part": "year"}, "unknown part 'year'; choose one of weekday, hour"),
        (
            {"name": "a", "min_count": -1},
            "min_count must be at least 1, which keeps every value, or 0 for the default, got -1",
        ),
        ({"name": "a", "hash_bits": 31}, "hash_bits must be between 1 and 30, or 0 for a vocabulary, got 31"),
        (
            {"name": "a", "kind": "numeric", "hash_bits": 3},
            "hash_bits requires a categorical field, but the field is numeric",
        ),
        ({"name": "a", "knots": 3}, "knots requires the transform 'interpolate'"),
        ({"name": "a", "kind": "numeric", "spacing": "log"}, "spacing requires the transform 'interpolate'"),
        (
            {"name": "a", "kind": "numeric", "transform": "interpolate", "knots": 1},
            "knots must be between 2 and 100000, got 1",
        ),
        ({"name": "a", "kind": "numeric", "multivalued": True}, "multivalued requires a categorical field"),
        ({"name": "a", "pooling": "sum"}, "pooling requires multivalued = true"),
        ({"name": "a", "weight_column": "w"}, "weight_column requires multivalued = true"),
        ({"name": "a", "multivalued": True, "pooling": "max"}, "unknown pooling 'max'; choose one of mean, sum, sqrt"),
        ({"name": "a", "multivalued": True, "separator": ", "}, "the separator must be one ASCII character other than"),
        ({"name": "a", "multivalued": True, "separator": "\0"}, "the separator must be one ASCII character other than"),
        ({"name": "a", "multivalued": True, "keep": "last"}, "keep requires max_values"),
        (
            {"name": "a", "multivalued": True, "max_values": 10**7},
            "max_values must be between 1 and 1000000, or 0 for no limit, got 10000000",
        ),
        ({"name": "a", "shares": "a"}, "shares names the field itself"),
        ({"name": "a", "shares": "b", "hash_bits": 3}, "hash_bits cannot be combined with shares"),
        (
            {"name": "a", "shares": "b", "min_count": 2},
            "min_count cannot be combined with shares; set it in the shared field, 'b'",
        ),
        (
            {"name": "a", "kind": "timestamp", "part": "hour", "format": "%Q"},
            "the format '%Q' may contain only %Y %y %m %d %H %M %S %z and %%",
        ),
    ],
)
def test_errors_name_the_invalid_setting_of_a_field(arguments, message):
    with pytest.raises(Fm2Error, match=message):
        Field(**arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = 'y'", "no fields"),
        ("[[field]]\nname = 'a'", "no label"),
        ("label = 'y'\n[[field]]\nname = 'a'\n[[field]]\nname = 'a'", "two fields have the name 'a'"),
        ("label = 'a'\n[[field]]\nname = 'a'", "field 'a' reads the column of the label, 'a'"),
        ("label = 'y'\ncolumns = ['y']\n[[field]]\nname = 'a'", "columns does not list the column 'a'"),
        ("label = 'y'\n[[field]]\nname = 'a'\ncolor = 1", "field 'a': unknown setting 'color'"),
        ("labels = 'y'", r"unknown setting 'labels'; did you mean 'label'\?"),
        ("label = 'y'\nfield = 3", "wrong type"),
        (
            "label = 'y'\n[[field]]\nname = 'a'\nmin_count = 'many'",
            "field 'a': min_count must be an integer, got 'many'",
        ),
        (
            "label = 'y'\nmissing = 'NA'\n[[field]]\nname = 'a'",
            r"missing must be a list of strings, like \['a', 'b'\], got 'NA'",
        ),
        ("label = 'y'\n[field]\nname = 'a'", r"must be written with double brackets, \[\[field\]\]"),
        ("label = 'y'\n[[field]]\nkind = 'numeric'", "a field has no name"),
        ("label = ", "is not a valid TOML file"),
        (
            "label = 'y'\n[[field]]\nname = 'item'\n[[field]]\nname = 'h'\nshares = 'itme'",
            r"field 'h': shares names an unknown field 'itme'; did you mean 'item'\?",
        ),
        (
            "label = 'y'\n[[field]]\nname = 'a'\nshares = 'b'\n[[field]]\nname = 'b'\nshares = 'a'",
            "'a' shares 'b', which shares 'a'; share a field with its own embeddings",
        ),
        (
            "label = 'y'\n[[field]]\nname = 'a'\nkind = 'numeric'\n[[field]]\nname = 'b'\nshares = 'a'",
            "field 'b' shares 'a', which is numeric",
        ),
    ],
)
def test_errors_name_the_invalid_file(write, text, message):
    path = write("schema.toml", text)
    with pytest.raises(Fm2Error, match=message) as error:
        Schema.load(path)
    assert str(path) in str(error.value)


def test_inference_distinguishes_quantities_times_and_categories(write):
    rows = [f"{i % 2},{i * 37},{i / 7:.3f},{i % 5},2024-01-0{1 + i % 9} 10:00:00,u{i},{i + 1000},\n" for i in range(60)]
    path = write("log.csv", "click,count,price,slot,when,user,item_id,empty\n" + "".join(rows))
    schema = Schema.infer(path, label="click")
    kinds = {field.name: field.transform or field.kind for field in schema.fields}
    assert kinds == {
        "count": "quantiles",
        "price": "quantiles",
        "slot": "categorical",
        "when_weekday": "timestamp",
        "when_hour": "timestamp",
        "user": "categorical",
        "item_id": "categorical",
        "empty": "categorical",
    }


def test_inference_accepts_dataframes_and_libffm_files(write):
    frame = pl.DataFrame(
        {"y": [0, 1], "t": [datetime.datetime(2024, 5, 1), None], "c": pl.Series(["a", "b"], dtype=pl.Categorical)}
    )
    assert [field.kind for field in Schema.infer(frame, label="y").fields] == ["timestamp", "timestamp", "categorical"]
    libffm = write("log.ffm", "1 0:3:1 2:5:1\n0 1:9:1 10:1:1\n")
    assert Schema.infer(libffm, label="label").names == ("0", "1", "2", "10")


def test_inference_reports_a_missing_label(write):
    with pytest.raises(Fm2Error, match="has no column 'clicked'; did you mean 'click'"):
        Schema.infer(write("log.csv", "click,a\n1,2\n"), label="clicked")
    with pytest.raises(Fm2Error, match="has no column 'label'; it has 'click', 'a'"):
        Schema.infer(write("log.csv", "click,a\n1,2\n"), label="label")


def test_columns_in_use_are_not_suggested(write, tmp_path):
    log = write("log.csv", "click,site,side\n1,2,3\n")
    fields = [Field("site"), Field("site2")]
    with pytest.raises(Fm2Error, match="has no column 'site2'; did you mean 'side'"):
        prepare(log, Schema(fields, label="click"), tmp_path / "data")


def test_inference_distinguishes_integers_that_count_from_identifiers():
    """Identifiers have gaps, or frequencies that do not depend on their neighbors'."""
    random = np.random.default_rng(0)
    rows = 10_000
    popularity = random.dirichlet(np.full(500, 0.5))
    users = random.choice(500, rows, p=popularity)
    columns = {
        "views": random.geometric(0.02, rows),
        "age": random.binomial(80, 0.4, rows) + 10,
        "year": 2024 - random.geometric(0.05, rows),
        "cents": np.exp(random.normal(9, 2, rows)).astype(np.int64),
        "delay": np.where(random.random(rows) < 0.05, -999, random.geometric(0.05, rows)),
        "user": users,  # consecutive numbers
        "item": 1000 + 7 * users,
        "campaign": np.array([random.integers(10**6) for _ in range(500)])[users],
        "request": random.integers(2**60, 2**62, rows),
        "rank": users % 18,
    }
    table = pl.DataFrame({"y": np.arange(rows) % 2, **columns})
    floats = table.with_columns(pl.col("user", "age").cast(pl.Float64))  # as in pandas, with missing values
    for each in (table, floats):
        with pytest.warns(Fm2Warning, match="left out column 'request'"):
            fields = Schema.infer(each, label="y").fields
        assert {field.name for field in fields if field.kind == "numeric"} == {"views", "age", "year", "cents", "delay"}


def test_columns_that_identify_rows_are_left_out(tmp_path, capsys):
    rows = 400
    columns = {
        "row": range(rows),
        "request": [f"r{row * 7919}" for row in range(rows)],
        "user": [f"u{row * row % 97}" for row in range(rows)],
        "session": [f"s{row * 19 // 20}" for row in range(rows)],
        "price": [row + 0.5 for row in range(rows)],
        "click_id": [f"c{row}" if row % 2 else None for row in range(rows)],
    }
    table = pl.DataFrame({"y": [0, 1] * (rows // 2), **columns})
    with pytest.warns(
        Fm2Warning, match="infer: left out column '(row|request)', because all of its first 400"
    ) as shown:
        schema = Schema.infer(table, label="y")
    assert len(shown) == 2
    assert schema.names == ("user", "session", "price", "click_id")  # the last one says whether there is a click
    assert Schema.infer(table.select("y", "request"), label="y").names == ("request",)  # there is no other
    assert Schema.infer(table.head(99), label="y").names == tuple(columns)

    described = describe(prepare(table, schema, tmp_path / "data"))["fields"]
    assert [field["name"] for field in described if field.get("nearly_unique")] == ["session"]
    assert main(["describe", str(tmp_path / "data")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"warning: session: 3\d\d values are nearly as many as rows; remove the field", printed)
    assert "warning: user" not in printed


def test_fields_whose_values_in_a_split_are_all_unknown_are_reported(tmp_path, capsys):
    users = [f"u{row // 20}" for row in range(600)]  # in order, so later rows have other users
    table = pl.DataFrame({"y": [0, 1] * 300, "user": users, "site": ["a", "b", "c"] * 200})
    prepare(table, Schema([Field("user"), Field("site")], label="y"), tmp_path / "data", split="time")
    assert main(["describe", str(tmp_path / "data")]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert warnings == [
        "warning: user: all values in validation and test are unknown; check the order of the rows and min_count, or "
        "use a coarser value"
    ]


def test_names_are_not_fields():
    with pytest.raises(Fm2Error, match=r"schema: expected a Field, got 'site'; write Field\('site'\)"):
        Schema(["site"], label="y")


def test_a_column_can_have_several_transforms(write):
    text = (
        "label = 'y'\n[[field]]\nname = 'n'\nkind = 'numeric'\ntransform = ['log_square', 'quantiles']\nbuckets = 7\n"
    )
    schema = Schema.load(write("schema.toml", text))
    assert schema.fields == (
        Field("n_log_square", "numeric", column="n"),
        Field("n_quantiles", "numeric", column="n", transform="quantiles", buckets=7),
    )
    assert schema.source_columns == ("y", "n")
    with pytest.raises(Fm2Error, match="field 'n_logs': unknown transform 'logs'"):
        Schema.load(write("wrong.toml", text.replace("log_square", "logs")))


def test_a_threshold_for_all_fields_is_that_of_the_fields_with_a_vocabulary():
    fields = [Field("item"), Field("history", multivalued=True, shares="item")]
    schema = Schema(fields, "y").with_min_count(9)
    assert [field.min_count for field in schema.fields] == [9, DEFAULT_MIN_COUNT]
    assert Schema.from_dict(schema.to_dict()) == schema


def test_a_field_can_be_appended_to_a_saved_schema(tmp_path):
    path = tmp_path / "schema.toml"
    Schema([Field("user"), Field("item")], label="click").save(path)
    path.write_text(path.read_text() + '\n[[field]]\nname = "user_item"\ncross = ["user", "item"]\n')
    assert Schema.load(path).fields[-1] == Field("user_item", cross=["user", "item"])


def test_a_schema_prints_its_label_and_a_line_per_field():
    fields = [
        Field("user"),
        Field("price", "numeric", transform="quantiles", buckets=9),
        Field("day", "timestamp", format="%Y-%m-%d", part="weekday"),
        Field("tags", multivalued=True, min_count=2, weighted=True),
        Field("user_price", cross=["user", "price"]),
    ]
    schema = Schema(fields, label="click", weight="w")
    assert str(schema).splitlines() == [
        "Schema: label 'click', weight 'w', 5 fields (1 categorical, 1 numeric, 1 timestamp, 1 multivalued, 1 cross)",
        "  user        categorical",
        "  price       numeric, transform quantiles, buckets 9",
        "  day         timestamp, part weekday, format %Y-%m-%d",
        "  tags        multivalued, min_count 2, separator |, pooling mean, weighted",
        "  user_price  cross of user, price",
    ]
    files = schema.replace(columns=["w", "click", "user", "price", "day", "tags"], missing=["NA", "\\N", "-", "?"])
    assert (
        str(files)
        .splitlines()[0]
        .endswith(" 1 cross), missing values 'NA', '\\N', '-' and 1 more, 6 columns in files without a header")
    )
    assert schema == Schema(fields, label="click", weight="w") != schema.replace(weight="")


def test_a_schema_is_one_line_within_other_objects_and_a_summary_in_a_notebook():
    schema = Schema([Field("user"), Field("ad")], label="it's")
    assert repr(schema) == """Schema(label="it's", 2 fields)"""
    assert repr(schema.replace(fields=[Field("ad")])) == """Schema(label="it's", 1 field)"""
    assert repr(schema) in repr(fm2.LRClassifier(fields=schema)).replace("\n", " ")
    printed: list[str] = []
    schema._repr_pretty_(SimpleNamespace(text=printed.append), cycle=False)
    assert printed == [str(schema)]


def test_a_schema_with_many_fields_prints_the_first_ones():
    schema = Schema([Field(f"c{i}") for i in range(500)], label="click")
    lines = str(schema).splitlines()
    assert lines[0] == "Schema: label 'click', 500 fields (500 categorical)"
    assert lines[-1] == "  and 460 more; see .fields"
    assert len(lines) == 42


def test_columns_with_the_same_name_are_an_error(write, tmp_path):
    path = write("log.csv", "click,a,b,a\n" + "1,x,y,z\n0,y,x,z\n" * 50)
    message = r"infer: .*log.csv line 1 has two columns 'a'; rename one of them"
    with pytest.raises(Fm2Error, match=message):
        Schema.infer(path, label="click")
    assert Schema.infer(write("other.csv", "click;a;b\n1;x;y\n0;y;x\n"), label="click").names == ("a", "b")
    table = pa.table([[1, 0] * 50, ["x", "y"] * 50, ["x", "z"] * 50], names=["click", "a", "a"])
    frames = (table, "pyarrow table"), (table.to_reader(), "pyarrow table"), (table.to_pandas(), "pandas DataFrame")
    for frame, name in frames:
        with pytest.raises(Fm2Error, match=f"^infer: the {name} has two columns 'a'; rename one of them$"):
            Schema.infer(frame, label="click")
    with pytest.raises(
        Fm2Error, match=r"log.csv has two columns 'a'; rename one of them; it has 'click', 'a', 'b', 'a'"
    ):
        prepare(path, Schema([Field("a")], label="click"), tmp_path / "data")
    assert prepare(path, Schema([Field("b")], label="click"), tmp_path / "data").schema.names == ("b",)


def test_inference_reports_a_missing_header_rather_than_the_values_that_occur_twice(write, tmp_path, capsys):
    path = write("log.tsv", "1\ta\t1\tb\n0\tb\t1\tc\n" * 50)
    assert main(["prepare", str(path), "--label", "click", "--out", str(tmp_path / "data")]) == 1
    message = f"fm2: infer: {path} line 1 has no column 'click'; it has '1', 'a', '1', 'b'\n"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("name", ["column_names", "columns", "schema", "collect_schema"])
def test_inference_reads_columns_with_the_names_of_attributes(name):
    table = pd.DataFrame({"click": [0, 1] * 50, name: ["x", "y"] * 50})
    for frame in (table, pl.DataFrame(table), pa.Table.from_pandas(table)):
        assert Schema.infer(frame, label="click").names == (name,)


def test_inference_names_what_it_cannot_read():
    mixed = pd.DataFrame({"click": [0, 1] * 50, "site": ["x", 1] * 50})
    with pytest.raises(Fm2Error, match=r"^infer: cannot read the DataFrame: "):
        Schema.infer(mixed, label="click")
    binary = pl.DataFrame({"click": [0, 1] * 50, "site": [b"x", b"\xff"] * 50})
    with pytest.raises(Fm2Error, match=r"^infer: cannot read column 'site': invalid utf8"):
        Schema.infer(binary, label="click")


def test_inference_reads_durations_as_numbers():
    durations = [datetime.timedelta(seconds=i * i) for i in range(100)]
    schema = Schema.infer(pl.DataFrame({"click": [0, 1] * 50, "waited": durations}), label="click")
    assert (schema.names, schema.fields[0].kind) == (("waited",), "numeric")
