"""Sources: the same rows from files and DataFrames of any kind yield the same dataset."""

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


def assert_same(dataset: Dataset, expected: Dataset) -> None:
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
def test_files_agree_with_the_dataframe(table, expected, tmp_path, form):
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
    assert_same(prepare(path, SCHEMA, tmp_path / "data"), expected)


def test_several_files_form_one_log(table, expected, tmp_path):
    for i in range(3):
        table[i * 1000 : (i + 1) * 1000].write_csv(tmp_path / f"part{i}.csv")
    assert_same(prepare(str(tmp_path / "part*.csv"), SCHEMA, tmp_path / "one"), expected)
    paths = [tmp_path / "part0.csv", table[1000:2000], tmp_path / "part2.csv"]
    assert_same(prepare(paths, SCHEMA, tmp_path / "two"), expected)


def test_dataframes_of_other_libraries_agree(table, expected, tmp_path):
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
        assert_same(prepare(form, SCHEMA, tmp_path / name), expected)


def test_libffm_files_agree_with_the_dataframe(table, expected, tmp_path):
    path = tmp_path / "log.ffm"
    path.write_text(libffm(table))
    schema = Schema([Field("0", min_count=2), Field("1", "numeric", min_count=2), Field("2", min_count=2)], label="y")
    assert_same(prepare(path, schema, tmp_path / "data"), expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0:a:1 7:b:1", "'7:b:1' is not field:feature:value with a field of the schema"),
        ("1 0:a", "'0:a' is not field:feature:value"),
        ("1 0:a:0.5", "'0:a:0.5' has a value other than 1"),
        ("1 0:a:1 0:b:1", "'0:b:1' repeats a field"),
        ("x 0:a:1", "label 'y' is 'x', not 0 or 1"),
    ],
)
def test_errors_name_the_bad_item_of_a_libffm_file(write, tmp_path, line, message):
    path = write("log.ffm", f"-1 0:a:1\n+1 0:a:1.0 \n{line}\n")
    with pytest.raises(Fm2Error, match=f"line 3: {message}"):
        prepare(path, Schema([Field("0")], label="y"), tmp_path / "data")


def test_different_spellings_of_a_number_are_one_feature(tmp_path):
    """An integer, the float that pandas makes of it in a column with gaps, and both as text."""
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


def test_datetime_and_date_columns_become_weekday_and_hour(tmp_path):
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


def test_errors_name_the_row_of_a_dataframe(tmp_path):
    schema = Schema([Field("n", "numeric")], label="y")
    with pytest.raises(Fm2Error, match=r"polars DataFrame row 3: field 'n' is 'x', not a number"):
        prepare(pl.DataFrame({"y": [0, 1, 1], "n": ["1", "2", "x"]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"row 2: label 'y' is '', not 0 or 1"):
        prepare(pl.DataFrame({"y": [0, None], "n": [1, 2]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match="polars DataFrame has no column 'n'"):
        prepare(pl.DataFrame({"y": [0, 1]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match="column 'n' contains lists; set multivalued = true for its field"):
        prepare(pl.DataFrame({"y": [0, 1], "n": [[1], [2]]}), schema, tmp_path / "data")
    with pytest.raises(
        Fm2Error, match=r"column 'n' has the unsupported Arrow type '\+s'; convert it to text, numbers or times"
    ):
        prepare(pl.DataFrame({"y": [0, 1], "n": [{"a": 1}, {"a": 2}]}), schema, tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"a source must be a path or a DataFrame \(polars, pandas, pyarrow\), got int"):
        prepare(17, schema, tmp_path / "data")


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_truncated_compressed_file_is_an_error(table, tmp_path, compress):
    compressed = compress(table.write_csv().encode())
    path = tmp_path / "log.csv.compressed"
    path.write_bytes(compressed[: len(compressed) * 2 // 3])
    with pytest.raises(Fm2Error, match="damaged or truncated"):
        prepare(path, SCHEMA, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_truncated_parquet_file_is_an_error(table, tmp_path):
    path = tmp_path / "log.parquet"
    table.write_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Fm2Error, match=r"cannot read .*log.parquet"):
        prepare(path, SCHEMA, tmp_path / "data")


def test_a_parquet_file_with_missing_rows_is_an_error(table, tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    table.write_parquet(path)
    parts = sources.FrameSource._parts
    monkeypatch.setattr(sources.FrameSource, "_parts", lambda *arguments: itertools.islice(parts(*arguments), 0))
    with pytest.raises(Fm2Error, match="it has 3000 rows, but only 0 could be read"):
        prepare(path, SCHEMA, tmp_path / "data")


def test_errors_of_other_libraries_become_one_line(tmp_path):
    schema = Schema([Field("a")], label="y")
    mixed = pd.DataFrame({"y": [0, 1], "a": [1, "x"]})
    with pytest.raises(Fm2Error, match="cannot read pandas DataFrame"):
        prepare(mixed, schema, tmp_path / "data")
    batches = pa.RecordBatchReader.from_batches(
        pa.schema([("y", pa.int8()), ("a", pa.string())]),
        [pa.record_batch({"y": pa.array([0, 1], pa.int8()), "a": ["x", "z"]})] * 5,
    )
    assert len(prepare(batches, schema, tmp_path / "stream", fractions=(1, 0, 0)).train) == 10


def test_missing_files_and_directories_are_errors(tmp_path):
    with pytest.raises(Fm2Error, match=r"file not found: .*none\.csv"):
        prepare(tmp_path / "none.csv", SCHEMA, tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"no file matches the pattern '.*/logs/\*\.csv'$"):
        prepare(tmp_path / "logs" / "*.csv", SCHEMA, tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"is an empty directory; pass files, or a pattern such as .*/\*\.csv$"):
        prepare(tmp_path, SCHEMA, tmp_path / "data")
    (tmp_path / "log.csv").touch()
    with pytest.raises(Fm2Error, match="is a directory; pass its files"):
        prepare(tmp_path, SCHEMA, tmp_path / "data")


def test_a_header_without_a_required_column_is_an_error(tmp_path):
    schema = Schema.preset("criteo")
    rows = "".join(",".join("1" for _ in schema.columns[1:]) + "\n" for _ in range(3))
    path = tmp_path / "log.csv"
    path.write_text(",".join(schema.columns[:-1]) + "\n" + rows)
    for labeled in (True, False):
        with pytest.raises(Fm2Error, match="line 1 has no column 'C26'"):
            sources.open_sources(path, schema, labeled)


def test_a_pandas_column_may_be_called_num_rows(tmp_path):
    log = pd.DataFrame({"y": [0, 1] * 50, "num_rows": ["a", "b"] * 50})
    dataset = prepare(log, Schema([Field("num_rows")], label="y"), tmp_path / "data")
    assert sum(len(dataset.split(name)) for name in ("train", "validation", "test")) == 100
