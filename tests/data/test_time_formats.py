"""Time formats read the same times as Python's datetime."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fm2._native import TimeFormat
from fm2.field import Field
from fm2.serving.typical import _times

UTC = datetime.UTC
DATES = [f"%Y{s}%m{s}%d" for s in "-/."] + [f"%d{s}%m{s}%Y" for s in "-/."] + ["%m/%d/%Y", "%Y%m%d", "%y%m%d"]
CLOCKS = ["%H:%M:%S", "%H:%M", "%H%M%S", "%H"]
moments = st.datetimes(datetime.datetime(1969, 1, 1), datetime.datetime(2068, 12, 31))


def unpadded(moment: datetime.datetime, format: str) -> str:
    """Write a moment without leading zeros, except where no separator ends a number."""
    separated = "%Y%" not in format and "%y%" not in format and "%H%" not in format
    return moment.strftime(format.replace("%", "%-").replace("%-Y", "%Y") if separated else format)


def offset_texts(minutes: int) -> list[str]:
    sign, hours, rest = "-" if minutes < 0 else "+", *divmod(abs(minutes), 60)
    texts = [f"{sign}{hours:02d}:{rest:02d}", f"{sign}{hours:02d}{rest:02d}"]
    return texts + ([] if rest else [f"{sign}{hours:02d}"]) + ([] if minutes else ["Z"])


@given(moments, st.sampled_from(DATES), st.sampled_from(["", " ", "T"]), st.sampled_from(CLOCKS))
def test_times_are_those_of_datetime(moment, date, between, clock):
    format = f"{date}{between}{clock}" if between else date
    expected = datetime.datetime.strptime(moment.strftime(format), format).replace(tzinfo=UTC)
    parse = TimeFormat(format).parse
    assert parse(moment.strftime(format)) == expected.timestamp()
    assert parse(unpadded(moment, format)) == expected.timestamp()


@given(moments, st.integers(-23 * 60 - 59, 23 * 60 + 59), st.integers(1, 9), st.sampled_from(".,"))
def test_offsets_and_fractions_are_those_of_datetime(moment, minutes, digits, comma):
    local = moment.replace(microsecond=0, tzinfo=datetime.timezone(datetime.timedelta(minutes=minutes)))
    parse = TimeFormat("%Y-%m-%dT%H:%M:%S%z").parse
    for text in offset_texts(minutes):
        clock = local.strftime("%Y-%m-%dT%H:%M:%S")
        assert parse(clock + text) == local.timestamp()
        assert parse(f"{clock}{comma}{'9' * digits}{text}") == local.timestamp()


@given(st.from_regex(r"[12][0-9]{3}-[0-9]{1,2}-[0-9]{1,2} [0-9]{1,2}:[0-9]{1,2}", fullmatch=True))
def test_times_that_datetime_refuses_are_refused(text):
    format = "%Y-%m-%d %H:%M"
    try:
        expected = datetime.datetime.strptime(text, format).replace(tzinfo=UTC).timestamp()
    except ValueError:
        expected = None
    assert TimeFormat(format).parse(text) == expected


@given(st.text("0123456789-:.,+ TZ", max_size=30), st.sampled_from(DATES), st.sampled_from(CLOCKS))
def test_any_text_is_a_time_or_not(text, date, clock):
    seconds = TimeFormat(f"{date} {clock}%z").parse(text)
    assert seconds is None or seconds > -(10**12)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("2024-13-01", "%Y-%m-%d"),
        ("2023-02-29", "%Y-%m-%d"),
        ("1900-02-29", "%Y-%m-%d"),
        ("2024-02-26 25:00", "%Y-%m-%d %H:%M"),
        ("2024-02-26 10:00+99:00", "%Y-%m-%d %H:%M%z"),
        ("2024-02-26 10:00+05:60", "%Y-%m-%d %H:%M%z"),
        ("2024-02-26 10:00 CET", "%Y-%m-%d %H:%M %z"),
        ("2024-02-26 10:00:07.", "%Y-%m-%d %H:%M:%S"),
        ("2024226", "%Y%m%d"),
        ("2024-02-26 10:00", "%Y-%m-%d"),
    ],
)
def test_invalid_times_are_refused(text, format):
    assert TimeFormat(format).parse(text) is None


def test_leap_days_are_times():
    assert TimeFormat("%d.%m.%Y").parse("29.2.2024") == datetime.datetime(2024, 2, 29, tzinfo=UTC).timestamp()
    assert TimeFormat("%d.%m.%Y").parse("29.02.2000") == datetime.datetime(2000, 2, 29, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "format", ["%Y-%m-%d %H:%M:%S%z", "%d/%m/%Y %H:%M %z", "%Y%m%d%H", "unix", "unix_ms", "%m-%d-%Y"]
)
def test_typical_values_of_a_form_are_different_times(format):
    values = list(_times(Field("when", "timestamp", format=format)))
    parse = TimeFormat(format).parse
    assert (
        len({parse(value) for value in values})
        == len(values)
        == (24 if "hour" in Field("w", "timestamp", format=format).time_parts else 7)
    )
    assert parse(values[0]) == datetime.datetime(2024, 1, 1, tzinfo=UTC).timestamp()
