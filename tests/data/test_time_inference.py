"""Schema inference recognizes the forms of times in logs, and nothing else."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fm2 import Field, Fm2Warning, Schema, prepare

START = datetime.datetime(2024, 2, 26, 9, 5, 7, tzinfo=datetime.UTC)  # a Monday
TIMES = [START + datetime.timedelta(hours=7 * i, seconds=i) for i in range(300)]


def infer(values, name="when") -> Schema:
    return Schema.infer(
        pl.DataFrame({"y": [0, 1] * (len(values) // 2), "site": ["a"] * len(values), name: values}), "y"
    )


def inferred(values, name="when") -> str | None:
    """Return the inferred format of a column, or None if it is no timestamp."""
    schema = infer(values, name)
    return schema.fields[1].format if len(schema.fields) > 1 else None


def features(dataset) -> dict[str, list[str | None]]:
    return dataset.decode(np.asarray(dataset.train.ids))


FORMS = {
    # of the texts, as Python writes them: the format that fm2 reads
    "%Y-%m-%d %H:%M:%S": "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S": "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ": "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%dT%H:%M:%S.%fZ": "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%dT%H:%M:%S%z": "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S.%f%:z": "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d %H:%M:%S.%f+00": "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%d %H:%M:%S %z": "%Y-%m-%d %H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S.%f UTC": "%Y-%m-%d %H:%M:%S UTC",
    "%Y-%m-%d %H:%M:%S,%f": "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M": "%Y-%m-%d %H:%M",
    "%Y/%m/%d %H:%M:%S": "%Y/%m/%d %H:%M:%S",
    "%Y.%m.%d %H:%M": "%Y.%m.%d %H:%M",
    "%d.%m.%Y %H:%M:%S": "%d.%m.%Y %H:%M:%S",
    "%d/%m/%Y %H:%M": "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M:%S": "%m/%d/%Y %H:%M:%S",
    "%-m/%-d/%Y %-H:%M": "%m/%d/%Y %H:%M",
    "%d-%m-%Y %H:%M:%S": "%d-%m-%Y %H:%M:%S",
    "%m-%d-%YT%H:%M": "%m-%d-%YT%H:%M",
    "%-d.%-m.%Y %-H:%M": "%d.%m.%Y %H:%M",
    "%Y%m%d%H": "%Y%m%d%H",
    "%Y%m%d%H%M": "%Y%m%d%H%M",
    "%Y%m%d%H%M%S": "%Y%m%d%H%M%S",
    "%s": "unix",
    "%s.%f": "unix",
    "%s250": "unix_ms",
    "%s250.75": "unix_ms",
}
DATES = ["%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y%m%d"]


def written(time: datetime.datetime, form: str) -> str:
    form = form.replace("%s", str(int(time.timestamp()))).replace("%:z", "+00:00")
    return time.strftime(form)


@pytest.mark.parametrize(("form", "format"), FORMS.items(), ids=FORMS)
def test_a_column_of_times_becomes_weekday_and_hour(tmp_path, form, format):
    log = tmp_path / "log.tsv"
    rows = [f"{i % 2}\t{written(time, form)}\n" for i, time in enumerate(TIMES)]
    log.write_text("y\twhen\n" + "".join(rows))
    schema = Schema.infer(log, label="y")
    assert [(field.name, field.format) for field in schema.fields] == [("when_weekday", format), ("when_hour", format)]
    dataset = prepare(log, schema.with_min_count(1), tmp_path / "data", fractions=(1, 0, 0))
    assert features(dataset) == {
        "when_weekday": [str(time.weekday()) for time in TIMES],
        "when_hour": [str(time.hour) for time in TIMES],
    }


@pytest.mark.parametrize("format", DATES)
def test_a_column_of_dates_becomes_a_weekday(tmp_path, format):
    schema = infer([time.strftime(format) for time in TIMES])
    assert [(field.name, field.format or "") for field in schema.fields] == [("site", ""), ("when_weekday", format)]
    table = pl.DataFrame({"y": 0, "site": "a", "when": [time.strftime(format) for time in TIMES]})
    dataset = prepare(table, schema.with_min_count(1), tmp_path / "data", fractions=(1, 0, 0))
    assert features(dataset)["when_weekday"] == [str(time.weekday()) for time in TIMES]


def test_times_of_several_zones_are_read_in_utc(tmp_path):
    zones = [datetime.timezone(datetime.timedelta(minutes=minutes)) for minutes in (0, 330, -480)]
    texts = [time.astimezone(zones[i % 3]).isoformat().replace("+00:00", "Z") for i, time in enumerate(TIMES)]
    assert texts[0].endswith("Z") and texts[1].endswith("+05:30") and texts[2].endswith("-08:00")
    assert inferred(texts) == "%Y-%m-%dT%H:%M:%S%z"
    schema = infer(texts).with_min_count(1)
    table = pl.DataFrame({"y": 0, "site": "a", "when": texts})
    dataset = prepare(table, schema, tmp_path / "data", fractions=(1, 0, 0))
    assert features(dataset)["when_hour"] == [str(time.hour) for time in TIMES]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([str(20_000_000 + 7919 * i) for i in range(300)], "n"),  # other integers of eight digits
        ([time.strftime("%Y%m%d") for time in TIMES], "day_id"),
        ([time.strftime("%Y%m%d%H") for time in TIMES], "request_key"),
        ([str(1_000_000_000 + 3_333_331 * (i % 150)) for i in range(300)], "user_id"),
        ([str(1_000_000_000_000 + 3_333_333_331 * (i % 150)) for i in range(300)], "session_key"),
        ([f"2024{13 + i % 80}01" for i in range(300)], "n"),  # the 13th month
        ([f"2024-01-01 {24 + i % 30}:00" for i in range(300)], "n"),
        ([f"{32 + i % 60}.13.2024" for i in range(300)], "n"),
        ([f"1.{i % 30}.{i % 7}" for i in range(300)], "version"),
        ([f"10.0.{i % 30}.{2000 + i % 9}" for i in range(300)], "ip"),
        ([f"2024-01/{1 + i % 28:02d}" for i in range(300)], "n"),
        ([f"12:{i % 60:02d}:{i % 7:02d}" for i in range(300)], "clock"),
        ([f"1970010{1 + i % 9}" if i % 10 else "no date" for i in range(300)], "n"),
        ([str(1_700_000_000_000_000 + 10**9 * i) for i in range(300)], "microseconds"),
        ([f"2024-02-{10 + i % 15} 10:00+99:00" for i in range(300)], "n"),
    ],
)
@pytest.mark.filterwarnings("ignore:infer")
def test_other_values_are_not_times(values, name):
    assert all(field.kind != "timestamp" for field in infer(values, name).fields)


def test_a_few_other_values_are_bad_rows():
    texts = [time.strftime("%d/%m/%Y %H:%M") for time in TIMES]
    assert inferred(["unknown"] * 15 + texts[15:]) == "%d/%m/%Y %H:%M"
    assert inferred(["unknown"] * 16 + texts[16:]) is None
    assert inferred([None, ""] * 140 + texts[280:]) == "%d/%m/%Y %H:%M"  # missing values do not count


@pytest.mark.parametrize(
    ("separator", "guess", "other"),
    [("/", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M"), ("-", "%d-%m-%Y %H:%M", "%m-%d-%Y %H:%M")],
)
def test_an_ambiguous_order_of_day_and_month_is_guessed_with_a_warning(separator, guess, other):
    texts = [f"{1 + i % 12}{separator}{1 + i % 11}{separator}2024 10:{i % 60:02d}" for i in range(300)]
    with pytest.warns(Fm2Warning, match=f"infer: column 'when': '1{separator}1{separator}2024 10:00' may") as shown:
        assert inferred(texts) == guess
    assert len(shown) == 1
    assert f'assuming {guess}; if that is wrong, write format = "{other}" in the schema' in str(shown[0].message)


def test_one_clear_value_decides_the_order_of_day_and_month():
    texts = ["01/02/2024 10:00"] * 99
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert inferred([*texts, "13/02/2024 10:00"]) == "%d/%m/%Y %H:%M"
        assert inferred([*texts, "02/13/2024 10:00"]) == "%m/%d/%Y %H:%M"
        assert inferred(["1.2.2024 10:00"] * 100) == "%d.%m.%Y %H:%M"  # with dots, the day is always first


def test_values_of_both_orders_are_an_ambiguous_column():
    texts = ["13/02/2024 10:00", "02/13/2024 10:00", *["01/02/2024 10:00"] * 98]
    with pytest.warns(Fm2Warning, match="'01/02/2024 10:00' may begin with .* and the values do not show which; assum"):
        assert inferred(texts) == "%m/%d/%Y %H:%M"


@pytest.mark.parametrize("format", ["%Y%m%d%H", "%Y%m%d"])
@pytest.mark.parametrize("year", [1971, 1998, 2001, 2033, 2068])
def test_dates_as_digits_are_no_seconds(year, format):
    texts = [(time - TIMES[0] + datetime.datetime(year, 2, 26)).strftime(format) for time in TIMES]
    assert inferred(texts) == format
    assert inferred(["1900010100"] * 15 + texts[15:]) == format  # stands for a missing date


@pytest.mark.parametrize(("first", "last"), [(1_690_000_000, 1_710_000_000), (1_970_000_000, 1_999_999_999)])
def test_seconds_may_look_like_dates(first, last):
    seconds = np.random.default_rng(0).integers(first, last, 10_000)
    assert inferred(list(map(str, seconds))) == "unix"


UTC_TIMES = pl.Series("when", TIMES, dtype=pl.Datetime("us", "UTC"))
TABLES = {
    "polars": lambda column: pl.DataFrame({"y": [0, 1] * 150, "when": column}),
    "pandas": lambda column: pd.DataFrame({"y": [0, 1] * 150, "when": column.to_list()}),
    "arrow": lambda column: pa.table({"y": [0, 1] * 150, "when": column.to_arrow()}),
}


@pytest.mark.parametrize("kind", [*TABLES, "parquet"])
@pytest.mark.parametrize(
    ("type", "names"),
    [
        (pl.Date, ["when_weekday"]),
        (pl.Datetime("us"), ["when_weekday", "when_hour"]),
        (pl.Datetime("ms", "UTC"), ["when_weekday", "when_hour"]),
        (pl.Datetime("us", "Asia/Tokyo"), ["when_weekday", "when_hour"]),
    ],
)
def test_columns_of_dates_and_times_need_no_format(tmp_path, kind, type, names):
    column = UTC_TIMES.cast(type)
    source = TABLES.get(kind, TABLES["polars"])(column)
    if kind == "parquet":
        source.write_parquet(tmp_path / "log.parquet")
        source = tmp_path / "log.parquet"
    schema = Schema.infer(source, label="y")
    assert list(schema.names) == names
    dataset = prepare(source, schema.with_min_count(1), tmp_path / "data", fractions=(1, 0, 0))
    assert features(dataset)["when_weekday"] == [str(time.weekday()) for time in TIMES]
    if "when_hour" in names:
        assert features(dataset)["when_hour"] == [str(time.hour) for time in TIMES]


def test_numbers_with_gaps_can_be_times():
    """pandas makes floats of integers with missing values."""
    seconds = pd.Series([int(time.timestamp()) for time in TIMES[:-1]] + [None])
    days = pd.Series([int(time.strftime("%Y%m%d")) for time in TIMES[:-1]] + [None])
    assert seconds.dtype == days.dtype == float
    schema = Schema.infer(pd.DataFrame({"y": [0, 1] * 150, "seconds": seconds, "day": days}), label="y")
    formats = {field.name: field.format for field in schema.fields}
    assert formats == {"seconds_weekday": "unix", "seconds_hour": "unix", "day_weekday": "%Y%m%d"}


def test_a_split_by_time_uses_an_inferred_column(tmp_path):
    order = np.random.default_rng(0).permutation(len(TIMES))
    texts = [TIMES[i].strftime("%d.%m.%Y %H:%M:%S") for i in order]
    table = pl.DataFrame({"y": [0, 1] * 150, "when": texts, "n": [f"n{i // 240}" for i in order]})
    dataset = prepare(table, Schema.infer(table, label="y"), tmp_path / "data", split="time")
    assert set(features(dataset)["n"]) == {"n0"}  # the earliest 80%
    assert (np.asarray(dataset.validation.ids)[:, 2] == 0).all()


def test_a_saved_schema_with_the_hour_of_a_date_is_unchanged(tmp_path):
    parts = [
        Field(f"day_{part}", "timestamp", column="day", part=part, format="%Y-%m-%d") for part in ("weekday", "hour")
    ]
    Schema(parts, label="y").save(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml").fields == tuple(parts)
    assert Schema([Field("day", "timestamp", format="%Y-%m-%d")], label="y").fields == (parts[0],)
