"""Reading text files: separators, quotes, encodings, bad rows and arbitrary bytes."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fm2 import Field, Fm2Error, Schema, prepare
from fm2.data import text_files
from fm2.data.dataset import Dataset

ALL_TRAIN = {"fractions": (1, 0, 0)}


def schema(*fields: Field, **settings) -> Schema:
    return Schema(fields or [Field("a", min_count=1), Field("b", min_count=1)], label="y", **settings)


def prepared(path, log_schema=None, **settings) -> Dataset:
    return prepare(path, log_schema or schema(), path.parent / "data", **ALL_TRAIN, overwrite=True, **settings)


def decoded(dataset: Dataset) -> list[tuple[object, ...]]:
    columns = dataset.decode(np.asarray(dataset.train.ids)).values()
    return list(zip(dataset.train.labels.tolist(), *columns, strict=True))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("y,a,b\n1,x,z\n0,,w\n", [(1, "x", "z"), (0, None, "w")]),
        ("y,a,b\r\n1,x,z\r\n0,,w", [(1, "x", "z"), (0, None, "w")]),
        ("\ufeffy,a,b\n1,x,z", [(1, "x", "z")]),
        ("y\ta\tb\n1\tx\tz\n", [(1, "x", "z")]),
        ("y;a;b\n1;x;z\n", [(1, "x", "z")]),
        ("y|a|b\n1|x|z\n", [(1, "x", "z")]),
        ("y\x01a\x01b\n1\x01x\x01z\n", [(1, "x", "z")]),
        ("b,extra,y,a\nz,?,1,x\n", [(1, "x", "z")]),
        ("y,a,b\n\n1,x,z\n\n\r\n0,x,z\n\n", [(1, "x", "z"), (0, "x", "z")]),
        ('y,a,b\n1,"x","z"\n0,"p,q","two\nlines"\n', [(1, "x", "z"), (0, "p,q", "two\nlines")]),
        ('y,a,b\r\n1,"say ""hi""",z\r\n"0","","w"', [(1, 'say "hi"', "z"), (0, None, "w")]),
        ('y,a,b\n1,in"side,z\n', [(1, 'in"side', "z")]),
        ('y\ta\tb\n1\t"x\tz"\n', [(1, '"x', 'z"')]),
        ("y,a,b\n1.0,ä€😀,z\ntrue,ä€😀,z\n", [(1, "ä€😀", "z"), (1, "ä€😀", "z")]),
        ('"y","a","b"\n1,x,z\n', [(1, "x", "z")]),
    ],
)
def test_cells_are_read_unchanged(write, text, rows):
    assert decoded(prepared(write("log.csv", text))) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "log.csv is empty"),
        (" \n\n", "log.csv is empty"),
        ("y,a,b\n", "log.csv has no rows"),
        ("y,a,c\n1,2,3\n", r"log.csv line 1 has no column 'b'; it has 'y', 'a', 'c'"),
        ("y,a,b,a\n1,2,3,4\n", "log.csv has two columns 'a'"),
        ("y,a,b\n1,2,3\n1,2\n", 'log.csv line 3: expected 3 columns, got 2; bad_rows="skip" ignores such rows'),
        ("y,a,b\n\n\n1,2,3,4\n", "log.csv line 4: expected 3 columns, got 4"),
        ("y,a,b\n2,x,z\n", "log.csv line 2: label 'y' is '2', not 0 or 1"),
        ("y,a,b\n,x,z\n", "log.csv line 2: label 'y' is '', not 0 or 1"),
        ('y,a,b\n1,"two\nlines",z\nno,x,z\n', "log.csv line 4: label 'y' is 'no', not 0 or 1"),
        ('y,a,b\n1,"open,z\n0,x,z\n', 'log.csv line 2: unbalanced quotes, or a quoted cell over 1 MB: 1,"open,z'),
        ('y,a,b\n1,"x"y,z\n', "log.csv line 2: unbalanced quotes"),
        (b"y,a,b\n1,\xff,z\n", r"log.csv line 2: field 'a' is '\\xff', not UTF-8 text"),
        (b"\xff\xfey\x00,\x00a\x00", "log.csv is not UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00", "log.csv is not UTF-8 text"),
        (b"\x80\x81,a,b\n1,2,3\n", "log.csv line 1 is not UTF-8 text"),
    ],
)
def test_errors_name_the_file_the_line_and_the_reason(write, text, message):
    path = write("log.csv", text)
    with pytest.raises(Fm2Error, match=message):
        prepared(path)
    assert not (path.parent / "data").exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["log.csv"]


def test_errors_name_the_field_of_a_bad_number_or_time(write):
    numbers = schema(Field("a", "numeric"))
    with pytest.raises(Fm2Error, match="line 3: field 'a' is 'abc', not a number"):
        prepared(write("log.csv", "y,a\n1,7\n1,abc\n"), numbers)
    times = schema(Field("a", "timestamp", format="%Y-%m-%d"))
    with pytest.raises(Fm2Error, match="line 2: field 'a_weekday' is '2024-13-01', not a time in the format %Y-%m-%d"):
        prepared(write("log.csv", "y,a\n1,2024-13-01\n"), times)


def test_the_schema_names_the_columns_of_a_file_without_header(write):
    headerless = schema(columns=["y", "a", "b"])
    assert decoded(prepared(write("log.tsv", "1\tx\tz\n"), headerless)) == [(1, "x", "z")]
    assert decoded(prepared(write("log.csv", "1,x,z\n"), headerless)) == [(1, "x", "z")]
    assert decoded(prepared(write("log.csv", "y,a,b\n1,x,z\n"), headerless)) == [(1, "x", "z")]
    assert decoded(prepared(write("log.tsv", "\ufeff1\tx\tz\n"), headerless)) == [(1, "x", "z")]


def test_the_schema_lists_texts_for_missing_values(write):
    text = "y,a,b\n1,NA,\\N\n0,,NA\n"
    assert decoded(prepared(write("log.csv", text), schema(missing=["NA", "\\N"]))) == [
        (1, None, None),
        (0, None, None),
    ]


def test_skipped_rows_are_written_to_a_file_with_the_reason(write):
    numbers = schema(Field("a", "numeric", min_count=1), Field("b", min_count=1))
    text = b'y,a,b\n1,7,x\n3,7,x\n0,x7,x\n1,2\n0,5,\xff\n1,9,\xff\n0,"1,x\n1,4,y\n'
    dataset = prepared(write("log.csv", text), numbers, bad_rows="skip")
    assert decoded(dataset) == [(1, "5", "x"), (1, "3", "y")]
    assert dataset.train.rows.tolist() == [0, 7]
    assert dataset.manifest["bad_rows"] == {
        "count": 6,
        "label": 1,
        "number": 1,
        "columns": 1,
        "encoding": 2,
        "quote": 1,
    }
    lines = (dataset.path / "bad_rows.tsv").read_bytes().splitlines()
    assert len(lines) == 7
    assert lines[1].endswith(b"line 3\tlabel 'y' is '3', not 0 or 1\t3,7,x")
    assert lines[-1].endswith(b'line 8\tunbalanced quotes, or a quoted cell over 1 MB: 0,"1,x\t0,"1,x')


def test_the_error_shows_the_first_row_if_all_rows_are_bad(write):
    with pytest.raises(
        Fm2Error, match=r"all 2 rows are bad; the first is .*log.csv line 2: label 'y' is '7', not 0 or 1"
    ):
        prepared(write("log.csv", "y,a,b\n7,x,y\n8,x,y\n"), bad_rows="skip")


@pytest.mark.parametrize(
    ("cell", "line", "reason", "way_out"),
    [
        (
            "1,abc,x",
            203,
            "field 'a' is 'abc', not a number",
            'make the field categorical in the schema (kind = "categorical")',
        ),
        (
            "7,1,x",
            203,
            "label 'y' is '7', not 0 or 1",
            "write labels as 0 and 1, or set impressions= if they count clicks",
        ),
        (
            "1,2",
            202,
            "expected 3 columns, got 4",
            "correct the columns of the schema, or split the log by its layouts",
        ),
    ],
)
def test_a_majority_of_bad_rows_is_a_mistake_of_the_schema(write, cell, line, reason, way_out):
    numbers = schema(Field("a", "numeric", min_count=1), Field("b", min_count=1))
    good, bad = "1,7,x\n0,5,y\n", f"{cell}\n"
    path = write("log.csv", "y,a,b\n" + good * 100 + "2,1,x,8\n" + bad * 300)
    with pytest.raises(Fm2Error) as error:
        prepared(path, numbers, bad_rows="skip")
    problem = f"{path} line {line}: {reason}"
    assert str(error.value) == (
        f"prepare: 60.1% of the rows are bad (301 of 501); the most frequent reason ({503 - line} rows), "
        f'first at {problem}; {way_out}; bad_rows="skip" is for a minority of the rows'
    )
    path = write("other.csv", "y,a,b\n" + good * 100 + bad * 200)
    assert prepared(path, numbers, bad_rows="skip").manifest["bad_rows"]["count"] == 200


@pytest.mark.parametrize("size", [64, 100, 101, 1000])
def test_chunks_may_end_within_a_row(write, monkeypatch, size):
    rows = [(i % 2, f"v{i % 7}", f'w\n"{i % 3}' if i % 5 == 0 else f"w{i % 3}") for i in range(300)]
    plain = [(y, a, b.replace("\n", " ").replace('"', "")) for y, a, b in rows]
    monkeypatch.setattr(text_files, "CHUNK_BYTES", size)
    for name, table in (("plain.csv", plain), ("quoted.csv", rows)):
        text = io.StringIO()
        csv.writer(text).writerows([("y", "a", "b"), *table])
        assert decoded(prepared(write(name, text.getvalue()))) == table


def test_a_line_has_a_maximum_length(write, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(text_files, "LONGEST_LINE", 10_000)
    with pytest.raises(Fm2Error, match="line 2 is longer than 0 MB; is this a text file"):
        prepared(write("log.csv", "y,a,b\n" + "x" * 100_000))


def feature(cell: str) -> str | None:
    """Return the feature of a cell: 1.0 is 1, True is true."""
    if re.fullmatch(r"-?[0-9]+\.0", cell):
        return cell[:-2]
    return {"True": "true", "False": "false"}.get(cell, cell) or None


cells = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("01"), cells, cells), min_size=1, max_size=20),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_the_output_of_a_csv_writer_is_read_back(tmp_path_factory, rows, end):
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator=end).writerows([("y", "a", "b"), *rows])
    expected = [(int(y), feature(a), feature(b)) for y, a, b in rows]
    assert decoded(prepared(path)) == expected


def inner_lines(dataset: Dataset) -> int:
    """Count the line ends in the cells of good rows, and in bad rows."""
    columns = dataset.decode(np.asarray(dataset.train.ids)).values()
    bad = dataset.path / "bad_rows.tsv"
    in_bad_rows = bad.read_bytes().count(b"\\n") if bad.exists() else 0
    return sum((value or "").count("\n") for column in columns for value in column) + in_bad_rows


junk = st.lists(
    st.sampled_from([b"0", b"1", b"\t", b"\n", b'"', b",", b"\r", b"\xff", b"\x00", b"ab", "ü€".encode()]), max_size=80
)


@settings(max_examples=150, deadline=None)
@given(junk=junk.map(b"".join) | st.binary(max_size=200), quotes=st.booleans())
def test_every_line_of_arbitrary_bytes_is_a_row_or_a_bad_row(tmp_path_factory, junk, quotes):
    separator = b"," if quotes else b"\t"
    path = tmp_path_factory.mktemp("junk") / "log.csv"
    path.write_bytes(separator.join([b"y", b"a", b"b"]) + b"\n" + separator.join([b"1", b"x", b"z"]) + b"\n" + junk)
    try:
        dataset = prepared(path, bad_rows="skip")
    except Fm2Error as error:
        assert "not UTF-8 text" in str(error)  # a zero byte near the beginning
        return
    lines = [line for line in junk.split(b"\n") if line.removesuffix(b"\r")]
    rows = len(dataset.train) + dataset.manifest["bad_rows"]["count"] - 1
    inner = inner_lines(dataset) if quotes else 0  # quoted cells may contain line ends
    assert len(lines) - inner <= rows <= len(lines)
