"""Schema inference recognizes multi-valued fields, and nothing else."""

from __future__ import annotations

import gzip
import json
import warnings

import numpy as np
import polars as pl
import pytest

from fm2 import Field, Schema, prepare
from fm2.errors import Fm2Warning


def inferred(values, name="x") -> Field:
    return Schema.infer(pl.DataFrame({"y": [0] * len(values), name: values}), label="y").fields[0]


def random_lists(separator: str, words: list[str], rows: int = 500) -> list[str]:
    random = np.random.default_rng(0)
    return [separator.join(random.choice(words, random.integers(1, 5))) for _ in range(rows)]


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_text_with_a_separator_is_multi_valued(separator):
    field = inferred(random_lists(separator, ["comedy", "crime", "drama", "western", "horror"]))
    assert (field.multivalued, field.separator, field.weighted) == (True, separator, False)


def test_blanks_separate_identifiers_but_not_words():
    assert inferred(random_lists(" ", [f"item{i}" for i in range(20)])).separator == " "
    assert not inferred(random_lists(" ", ["the", "red", "car", "is", "fast", "and", "cheap"])).multivalued


def test_weights_in_cells_are_recognized():
    random = np.random.default_rng(0)
    cells = [
        "|".join(f"{word}:{random.random():.3f}" for word in random.choice(["a", "b", "c"], random.integers(1, 4)))
        for _ in range(300)
    ]
    field = inferred(cells)
    assert (field.multivalued, field.separator, field.weighted) == (True, "|", True)


@pytest.mark.parametrize(
    "values",
    [
        [f"2024-01-{1 + i % 28:02d} {i % 24:02d}:{i % 60:02d}" for i in range(500)],
        [f"{i % 13},{i % 7}" for i in range(500)],
        [f"{i % 9},{i % 1000:03d}" for i in range(500)],
        [f"Smith{i % 40}, John{i % 30}" for i in range(500)],
        [f"the title number {i} of a movie, {i * 17 % 91}" for i in range(500)],
        [f"a unique text {i}|and another {i * i}" for i in range(500)],
        ["", ""],
    ],
)
def test_other_texts_are_not_split(values):
    assert not inferred(values).multivalued


@pytest.mark.parametrize(
    ("write", "fix"),
    [
        (json.dumps, r'pl\.col\("x"\)\.str\.json_decode\(pl\.List\(pl\.String\)\)$'),
        (repr, r"""pl\.col\("x"\)\.str\.replace_all\("'", '"'\)\.str\.json_decode"""),
        (lambda cell: f"[{', '.join(cell)}]", r'pl\.col\("x"\)\.str\.strip_chars\("\[\]"\)\.str\.split\(", "\)$'),
        (lambda cell: json.dumps(dict.fromkeys(cell, 0.5)), r"write them as a:0.5|b:2 and set weighted = true"),
    ],
)
def test_lists_in_brackets_are_not_split_but_reported(tmp_path, write, fix):
    lists = [cell.split("|") for cell in random_lists("|", ["comedy", "crime", "drama", "western", "sci fi"])]
    cells = [write(cell) for cell in lists]
    with pytest.warns(Fm2Warning, match=r"^infer: column 'x' contains lists in brackets, such as .*" + fix):
        assert not inferred(cells).multivalued
    frame = pl.DataFrame({"y": [0, 1] * 250, "x": cells})
    schema = Schema([Field("x", multivalued=True, separator=",")], "y")
    with pytest.warns(Fm2Warning, match=r"^prepare: field 'x' has values with brackets, such as"):
        prepare(frame, schema, tmp_path / "data")
    for column in (["comedy", "crime|drama"] * 20, ["[Official]", "[Live]"] * 20):  # no lists, or none in brackets
        assert inferred(column)


@pytest.mark.parametrize(
    ("write", "convert"),
    [
        (json.dumps, lambda x: x.str.json_decode(pl.List(pl.String))),
        (repr, lambda x: x.str.replace_all("'", '"').str.json_decode(pl.List(pl.String))),
        (lambda cell: f"[{', '.join(cell)}]", lambda x: x.str.strip_chars("[]").str.split(", ")),
    ],
)
def test_the_suggested_conversions_make_lists(write, convert):
    lists = [["comedy", "sci fi"], ["crime"]]
    frame = pl.DataFrame({"y": [0, 1], "x": [write(cell) for cell in lists]}).with_columns(convert(pl.col("x")))
    assert frame["x"].to_list() == lists
    assert Schema.infer(frame, label="y").fields[0].multivalued


def test_list_columns_are_multi_valued():
    frame = pl.DataFrame({"y": [0, 1], "a": [["x"], None], "b": [[{"value": "x", "weight": 1.5}], []], "c": ["x", "y"]})
    array = frame.with_columns(d=pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)))
    fields = {field.name: field for field in Schema.infer(array, label="y").fields}
    assert [fields[name].multivalued for name in "abcd"] == [True, True, False, True]
    assert [fields[name].weighted for name in "abcd"] == [False, True, False, False]


def test_list_columns_of_parquet_are_multi_valued(tmp_path):
    pl.DataFrame({"y": [0, 1], "tags": [["x", "y"], ["z"]]}).write_parquet(tmp_path / "log.parquet")
    assert Schema.infer(tmp_path / "log.parquet", label="y").fields[0].multivalued


def test_libffm_fields_with_repetitions_or_weights_are_multi_valued(tmp_path):
    path = tmp_path / "log.ffm.gz"
    path.write_bytes(gzip.compress(b"1 0:a:1 1:x:1 2:p:1 1:y:1\n0 0:b:1.0 2:p:0.5\n"))
    fields = Schema.infer(path, label="click").fields
    assert [field.name for field in fields] == ["0", "1", "2"]
    assert [(field.multivalued, field.weighted) for field in fields] == [(False, False), (True, True), (True, True)]


@pytest.mark.parametrize("kind", ["text", "lists", "weighted"])
def test_a_history_of_items_shares_their_vocabulary(kind):
    random = np.random.default_rng(0)
    items = random.integers(0, 60, 1000).tolist()
    lists = [random.integers(0, 60, random.integers(1, 5)).tolist() for _ in range(1000)]
    weight = ":0.5" if kind == "weighted" else ""
    cells = lists if kind == "lists" else ["|".join(f"{item}{weight}" for item in items) for items in lists]
    users = random.integers(1000, 1050, 1000).tolist()
    frame = pl.DataFrame({"y": [0] * 1000, "user_id": users, "item_id": items, "history": cells})
    for min_count in (1, 4):
        schema = Schema.infer(frame, label="y", min_count=min_count)
        assert schema.fields[2].shares == "item_id"
        assert schema.fields[1].min_count == min_count


@pytest.mark.parametrize(
    ("values", "others"),
    [
        (range(60), {"a_id": range(1000, 1060)}),  # other values
        (range(30), {"a_id": range(500)}),  # a few of many numbers
        (range(15), {"a_id": range(15)}),  # few values, such as categories
        (range(60), {"a_id": range(60), "b_id": range(60)}),  # one column is as good as the other
    ],
)
def test_other_lists_have_their_own_vocabulary(values, others):
    random = np.random.default_rng(0)
    lists = [random.choice(values, random.integers(1, 5)).tolist() for _ in range(3000)]
    columns = {name: random.choice(column, 3000) for name, column in others.items()}
    schema = Schema.infer(pl.DataFrame({"y": [0] * 3000, **columns, "tags": lists}), label="y")
    assert [field.shares for field in schema.fields if field.multivalued] == [""]


def test_real_logs(real_data):
    movies = real_data / "movies_train.csv.gz"
    if not movies.exists():
        pytest.skip("real data: there is no movies_train.csv.gz")
    schema = Schema.infer(movies, label="label")
    lists = {field.name: field.separator for field in schema.fields if field.multivalued}
    assert lists == {"genres": "|", "tags": "|", "liked_history": "|"}
    assert {field.name: field.shares for field in schema.fields if field.shares} == {"liked_history": "movie"}
    for name, label in (("avazu.csv.gz", "click"), ("adult_train.csv.gz", None)):
        if (path := real_data / name).exists():
            header = gzip.decompress(path.read_bytes()).decode().split("\n")[0].split(",")
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "infer: left out column 'id'", Fm2Warning)
                schema = Schema.infer(path, label=label or header[-1])
            assert not [field.name for field in schema.fields if field.multivalued]
