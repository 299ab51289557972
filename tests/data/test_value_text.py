"""The text form of a value: text files, DataFrames and Python objects yield the same feature."""

from __future__ import annotations

import datetime
import types

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fm2 import Field, Fm2Error, Schema
from fm2.data.encoder import Encoder
from fm2.data.vocabulary import Vocabulary

MONDAY = datetime.datetime(2024, 2, 26, 13, 30, 15, 500_000)


def encoder(*texts: str, field: Field | None = None) -> Encoder:
    return Encoder(Schema([field or Field("value")], label="click"), [Vocabulary.of(texts)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ü", "ü"),
        (b"raw", "raw"),
        (7, "7"),
        (-(2**40), "-1099511627776"),
        (2**80, "1208925819614629174706176"),
        (1e5, "100000"),
        (0.25, "0.25"),
        (1e-5, "1e-05"),
        (1e22, "1e+22"),
        (True, "true"),
        (np.bool_(False), "false"),
        (np.int16(-3), "-3"),
        (np.float32(0.1), "0.1"),
        (np.float64(0.1), "0.1"),
        (np.str_("a"), "a"),
        ("1.0", "1"),
        ("True", "true"),
        (None, ""),
        (float("nan"), ""),
        (np.float32("nan"), ""),
        (np.datetime64("NaT"), ""),
        (pd.NA, ""),
        (pd.NaT, ""),
    ],
)
def test_a_python_value_has_the_text_of_a_log(value, text):
    other = "another value"
    assert encoder(other, text).encode([{"value": value}]).tolist() == [[2]]
    assert encoder(other, text).encode({"value": [value, other]}).tolist() == [[2], [1]]


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1)
    | st.lists(st.floats(allow_infinity=False) | st.none(), min_size=1)
    | st.lists(st.floats(width=32, allow_infinity=False).map(np.float32), min_size=1)
    | st.lists(st.booleans() | st.none(), min_size=1)
    | st.lists(st.datetimes() | st.none(), min_size=1)
    | st.lists(st.dates() | st.none(), min_size=1)
)
def test_dicts_and_dataframes_have_the_same_features(values):
    frame = pl.DataFrame({"value": np.array(values) if isinstance(values[0], np.float32) else values})
    hashed = Field("value", hash_bits=30)  # tells all texts apart, without a vocabulary
    encode = encoder(field=hashed).encode
    np.testing.assert_array_equal(encode([{"value": value} for value in values]), encode(frame))


@pytest.mark.parametrize(
    "time",
    [
        MONDAY,
        MONDAY.replace(tzinfo=datetime.UTC),
        MONDAY.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-3)), hour=10),
        pd.Timestamp(MONDAY),
        np.datetime64(MONDAY, "ns"),
        "2024-02-26 13:30:15",
    ],
)
def test_times_have_the_same_weekday_and_hour(time):
    hour = Field("value", "timestamp", part="hour")
    assert encoder("3", "13", field=hour).encode([{"value": time}]).tolist() == [[2]]
    weekday = Field("value", "timestamp", part="weekday")
    assert encoder("6", "0", field=weekday).encode([{"value": time}]).tolist() == [[2]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"value": [1, 2]}, "encode: column 'value': a value has the type 'list'; expected text, a number, a bool"),
        ({"value": {}}, "encode: column 'value': a value has the type 'dict'"),
        ({"other": 1}, "encode: a row has none of the model's columns"),
        (7, "encode: expected a row as a dict of values by column, got 'int'"),
    ],
)
def test_errors_name_the_column_and_the_type(row, message):
    with pytest.raises(Fm2Error, match=message):
        encoder("a").encode([row])


def test_any_mapping_is_a_row():
    assert encoder("a").encode([types.MappingProxyType({"value": "a"})]).tolist() == [[1]]
