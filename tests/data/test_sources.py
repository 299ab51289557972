"""One table, many forms: every source gives the same encoded rows."""

from __future__ import annotations

import datetime
import gzip
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zstandard

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.data import sources

SCHEMA = Schema(
    [Field("site", min_count=2), Field("n", "numeric", min_count=2), Field("flag", min_count=2)], label="click"
)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    random = np.random.default_rng(1)
    rows = 3000
    site = [None if i % 11 == 0 else f"site {i}" for i in random.zipf(1.5, rows) % 50]
    n = [None if i % 13 == 0 else int(i) for i in random.integers(-2, 5000, rows)]
    return pl.DataFrame({"click": random.integers(0, 2, rows), "site": site, "n": n, "flag": random.random(rows) < 0.3})


@pytest.fixture(scope="module")
def expected(table, tmp_path_factory) -> Dataset:
    return prepare(table, SCHEMA, tmp_path_factory.mktemp("expected") / "data")


def same(dataset: Dataset, expected: Dataset) -> None:
    for split in ("train", "validation", "test"):
        for part in ("ids", "labels", "rows"):
            np.testing.assert_array_equal(getattr(dataset.split(split), part), getattr(expected.split(split), part))


def libffm(table: pl.DataFrame) -> str:
    lines = []
    for click, *values in table.rows():
        items = [f"{field}:{str(value).replace(' ', '_')}:1" for field, value in enumerate(values) if value is not None]
        lines.append(" ".join([str(click), *items]))
    return "\n".join(lines)


@pytest.mark.parametrize("form", ["csv", "tsv", "csv.gz", "csv.zst", "parquet", "many.parquet"])
def test_files_agree_with_the_frame(table, expected, tmp_path, form):
    path = tmp_path / f"log.{form}"
    text = table.write_csv(separator="\t" if form == "tsv" else ",").encode()
    if "parquet" in form:
        table.write_parquet(path, row_group_size=100 if form == "many.parquet" else None)
    elif form.endswith("gz"):
        path.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    elif form.endswith("zst"):
        path.write_bytes(b"".join(zstandard.compress(part) for part in (text[:1000], text[1000:])))
    else:
        path.write_bytes(text)
    same(prepare(path, SCHEMA, tmp_path / "data"), expected)


def test_several_files_and_globs_are_one_log(table, expected, tmp_path):
    for i in range(3):
        table[i * 1000 : (i + 1) * 1000].write_csv(tmp_path / f"part{i}.csv")
    same(prepare(str(tmp_path / "part*.csv"), SCHEMA, tmp_path / "one"), expected)
    paths = [tmp_path / "part0.csv", table[1000:2000], tmp_path / "part2.csv"]
    same(prepare(paths, SCHEMA, tmp_path / "two"), expected)


def test_tables_of_other_libraries_agree(table, expected, tmp_path):
    arrow = table.to_arrow()
    assert isinstance(arrow, pa.Table)
    forms = {
        "pandas": table.to_pandas(),
        "arrow": arrow,
        "batches": pa.Table.from_batches(arrow.to_batches(max_chunksize=77)),
        "sliced": pa.concat_tables([arrow.slice(0, 1234), arrow.slice(1234)]),
        "lazy": table.lazy(),
        "categories": table.with_columns(pl.col("site").cast(pl.Categorical)),
        "dictionary": arrow.set_column(1, "site", arrow["site"].dictionary_encode()),
        "flags": table.with_columns(pl.Series("flag", [str(flag) for flag in table["flag"]])),
        "float": table.with_columns(pl.col("n").cast(pl.Float64), pl.col("click").cast(pl.Float32)),
        "small": table.with_columns(pl.col("n").cast(pl.Int16), pl.col("click").cast(pl.Boolean)),
        "text": table.with_columns(pl.col("n", "click").cast(pl.String)),
        "objects": pd.DataFrame({name: table[name].to_list() for name in table.columns}),
    }
    for name, form in forms.items():
        same(prepare(form, SCHEMA, tmp_path / name), expected)


def test_libffm_text_agrees(table, expected, tmp_path):
    path = tmp_path / "log.ffm"
    path.write_text(libffm(table))
    schema = Schema([Field("0", min_count=2), Field("1", "numeric", min_count=2), Field("2", min_count=2)], label="y")
    same(prepare(path, schema, tmp_path / "data"), expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0:a:1 7:b:1", "'7:b:1' is not field:feature:value with a field of the schema"),
        ("1 0:a", "'0:a' is not field:feature:value"),
        ("1 0:a:0.5", "'0:a:0.5' has a value other than 1"),
        ("1 0:a:1 0:b:1", "'0:b:1' is the second feature of its field"),
        ("x 0:a:1", "label 'y' is 'x', not 0 or 1"),
    ],
)
def test_bad_libffm_is_named(write, tmp_path, line, message):
    path = write("log.ffm", f"-1 0:a:1\n+1 0:a:1.0 \n{line}\n")
    with pytest.raises(Fm2Error, match=f"line 3: {message}"):
        prepare(path, Schema([Field("0")], label="y"), tmp_path / "data")


def test_one_value_in_many_writings_is_one_feature(tmp_path):
    """Integers, floats as pandas makes them of integers with gaps, and both as text."""
    values = [100000, 200000, 1000000, 123456, 5, -7]
    texts = pl.DataFrame({"y": [0, 1] * 30, "c": [str(value) for value in values] * 10})
    dataset = prepare(texts, Schema([Field("c", min_count=1)], "y"), tmp_path / "data", fractions=(1, 0, 0))
    expected = dataset.encode({"c": [str(value) for value in values]})
    assert (expected > 0).all()
    gaps = pd.DataFrame({"c": [*values, None]})
    assert gaps["c"].dtype == float
    np.testing.assert_array_equal(dataset.encode(gaps)[:-1], expected)
    np.testing.assert_array_equal(dataset.encode({"c": [f"{value}.0" for value in values]}), expected)
    assert (dataset.encode({"c": ["100000.00", "1e5", "0100000", "5."]}) == 0).all()


def test_times_from_columns_of_times(tmp_path):
    start = datetime.datetime(2024, 2, 26)  # a Monday
    times = [start + datetime.timedelta(hours=5 * i) for i in range(60)]
    table = pl.DataFrame({"y": [0, 1] * 30, "t": times})
    schema = Schema([Field("t", "timestamp", min_count=1)], label="y")
    forms = {
        "datetime": table,
        "ms": table.with_columns(pl.col("t").cast(pl.Datetime("ms"))),
        "ns": table.with_columns(pl.col("t").cast(pl.Datetime("ns"))),
        "text": table.with_columns(pl.col("t").dt.strftime("%Y-%m-%d %H:%M:%S")),
    }
    for name, form in forms.items():
        dataset = prepare(form, schema, tmp_path / name, fractions=(1, 0, 0))
        decoded = dataset.decode(np.asarray(dataset.train.ids))
        assert decoded["t_weekday"] == [str(time.weekday()) for time in times]
        assert decoded["t_hour"] == [str(time.hour) for time in times]
    dates = table.with_columns(pl.col("t").cast(pl.Date))
    dataset = prepare(dates, schema, tmp_path / "date", fractions=(1, 0, 0))
    assert dataset.decode(np.asarray(dataset.train.ids))["t_weekday"] == [str(time.weekday()) for time in times]


def test_bad_tables_are_refused_by_row(tmp_path):
    schema = Schema([Field("n", "numeric")], label="y")
    with pytest.raises(Fm2Error, match=r"polars table row 3: field 'n' is 'x', not a number"):
        prepare(pl.DataFrame({"y": [0, 1, 1], "n": ["1", "2", "x"]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"row 2: label 'y' is '', not 0 or 1"):
        prepare(pl.DataFrame({"y": [0, None], "n": [1, 2]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match="polars table has no column 'n'"):
        prepare(pl.DataFrame({"y": [0, 1]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"column 'n' is of a type .* make it a column of texts, numbers or times"):
        prepare(pl.DataFrame({"y": [0, 1], "n": [[1], [2]]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match="a source is a path or a table"):
        prepare(17, schema, tmp_path / "data")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_that_is_cut_short_is_noticed(table, tmp_path, pack):
    packed = pack(table.write_csv().encode())
    path = tmp_path / "log.csv.packed"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    with pytest.raises(Fm2Error, match="damaged or cut short"):
        prepare(path, SCHEMA, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_parquet_file_that_is_cut_short_is_noticed(table, tmp_path):
    path = tmp_path / "log.parquet"
    table.write_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Fm2Error, match=r"log.parquet cannot be read"):
        prepare(path, SCHEMA, tmp_path / "data")


def test_a_parquet_file_that_ends_early_is_noticed(table, tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    table.write_parquet(path)
    real = sources._parts
    monkeypatch.setattr(sources, "_parts", lambda *given: itertools.islice(real(*given), 0))
    with pytest.raises(Fm2Error, match="only 0 of its 3000 rows came out"):
        prepare(path, SCHEMA, tmp_path / "data")


def test_what_other_libraries_raise_is_one_line(tmp_path):
    schema = Schema([Field("a")], label="y")
    mixed = pd.DataFrame({"y": [0, 1], "a": [1, "x"]})
    with pytest.raises(Fm2Error, match="pandas table cannot be read"):
        prepare(mixed, schema, tmp_path / "data")
    batches = pa.RecordBatchReader.from_batches(
        pa.schema([("y", pa.int8()), ("a", pa.string())]),
        [pa.record_batch({"y": pa.array([0, 1], pa.int8()), "a": ["x", "z"]})] * 5,
    )
    assert len(prepare(batches, schema, tmp_path / "stream", fractions=(1, 0, 0)).train) == 10


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(Fm2Error, match="there is no file"):
        prepare(tmp_path / "none.csv", SCHEMA, tmp_path / "data")
    with pytest.raises(Fm2Error, match="is a directory; name its files"):
        prepare(tmp_path, SCHEMA, tmp_path / "data")


def test_a_header_that_lacks_a_column_is_no_row(tmp_path):
    schema = Schema.preset("criteo")
    rows = "".join(",".join("1" for _ in schema.columns[1:]) + "\n" for _ in range(3))
    path = tmp_path / "log.csv"
    path.write_text(",".join(schema.columns[:-1]) + "\n" + rows)
    for labeled in (True, False):
        with pytest.raises(Fm2Error, match="line 1 has no column 'C26'"):
            sources.open_sources(path, schema, labeled)
