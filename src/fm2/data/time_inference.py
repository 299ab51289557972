"""Recognize columns of times, and the format in which they are written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from fm2._native import TimeFormat
from fm2.errors import warn

MOSTLY = 0.95  # the share of values that must be times; the others will be bad rows, not unknown values
CANDIDATES = 3  # the formats that are tried; more in one column are not times of one format

DATE_AND_TIME = re.compile(
    r"""(?: [0-9]{4} (?P<after_year>[-/.]) [0-9]{1,2} (?P=after_year) [0-9]{1,2}
          | [0-9]{1,2} (?P<before_year>[-/.]) [0-9]{1,2} (?P=before_year) [0-9]{4} )
        (?: (?P<between>[T\ ]) [0-9]{1,2}:[0-9]{2} (?P<seconds>:[0-9]{2}(?:[.,][0-9]+)?)?
            (?P<zone>Z|\ UTC|(?P<blank>\ ?)(?P<offset>[+-][0-9]{2}(?::?[0-9]{2})?))? )?""",
    re.VERBOSE,
)
SECONDS = {"unix": re.compile(r"1[0-9]{9}(\.[0-9]+)?"), "unix_ms": re.compile(r"1[0-9]{12}(\.[0-9]+)?")}
DAY = "(19[7-9][0-9]|20[0-6][0-9])(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])"
HOUR, SIXTY = "([01][0-9]|2[0-3])", "[0-5][0-9]"
DIGITS = {
    "%Y%m%d": re.compile(DAY),
    "%Y%m%d%H": re.compile(DAY + HOUR),
    "%Y%m%d%H%M": re.compile(DAY + HOUR + SIXTY),
    "%Y%m%d%H%M%S": re.compile(DAY + HOUR + SIXTY + SIXTY),
}


def infer_time_format(name: str, values: Sequence[str], identifier: bool = False) -> str | None:
    """Return the format of a column of times, or None if fewer than 95% of the values are times of one format.

    Digits without separators are neither dates nor seconds since 1970 in a column whose name is that of an
    ``identifier``. A column that does not distinguish day and month gets the usual order, with a warning.

    >>> infer_time_format("when", ["2024-02-26T10:00:00.123+01:00"]), infer_time_format("when", ["26.2.2024 9:05"])
    ('%Y-%m-%dT%H:%M:%S%z', '%d.%m.%Y %H:%M')
    >>> infer_time_format("day", ["20240226"]), infer_time_format("day", ["20241326"])
    ('%Y%m%d', None)
    """
    counts = Counter(values)
    formats = _formats(counts, identifier)
    if not formats:
        return None
    matches = {format: _count(format, counts) for format in _candidates(formats)}
    enough = MOSTLY * len(values)
    # Any integer is a number of seconds: if nearly all values are dates as well, the column has dates.
    best = max(matches, key=lambda format: (format in DIGITS and matches[format] >= enough, matches[format]))
    if matches[best] < enough:
        return None
    month_first = _month_first(best)
    if matches.get(month_first, 0) < matches[best]:
        return best
    orders = TimeFormat(best), TimeFormat(month_first)
    example = next(value for value in counts if None not in [order.parse(value) for order in orders])
    return _usual_order(name, best, example)


def _formats(counts: Counter[str], identifier: bool) -> Counter[str]:
    """Return how many values look like each format, or nothing as soon as too many values look like none."""
    formats: Counter[str] = Counter()
    most_others = (1 - MOSTLY) * counts.total()
    others = 0
    for value, count in counts.items():
        format = _format_of(value)
        if format and not (identifier and format in (*DIGITS, *SECONDS)):
            formats[format] += count
        else:
            others += count
            if others > most_others:
                return Counter()
    return formats


def _format_of(value: str) -> str | None:
    """Return the format that a value looks like, with the day before the month if both are before the year."""
    if match := DATE_AND_TIME.fullmatch(value):
        return _date_format(match) + _clock_format(match)
    for patterns in (DIGITS, SECONDS):  # dates before 2000 also look like seconds
        for format, pattern in patterns.items():
            if pattern.fullmatch(value):
                return format
    return None


def _date_format(match: re.Match[str]) -> str:
    order, separator = ("%Y %m %d", match["after_year"]) if match["after_year"] else ("%d %m %Y", match["before_year"])
    return order.replace(" ", separator)


def _clock_format(match: re.Match[str]) -> str:
    if not match["between"]:
        return ""
    zone = match["blank"] + "%z" if match["offset"] else match["zone"] or ""
    return match["between"] + "%H:%M" + (":%S" if match["seconds"] else "") + zone


def _candidates(formats: Counter[str]) -> Iterator[str]:
    """Return the most common formats, and those that parse the same values and possibly more."""
    for format, _ in formats.most_common(CANDIDATES):
        zones = [format, format.removesuffix("Z") + "%z"] if format.endswith("Z") else [format]
        for each in zones:
            yield each
            if other := _month_first(each):
                yield other


def _month_first(format: str) -> str:
    """Return a format with the month before the day instead of after it, or "" if there is none."""
    separator = format[2:3]
    return f"%m{separator}%d" + format[5:] if format.startswith("%d") and separator in "/-" else ""


def _count(format: str, counts: Counter[str]) -> int:
    parse = TimeFormat(format).parse
    return sum(count for value, count in counts.items() if parse(value) is not None)


def _usual_order(name: str, day_first: str, example: str) -> str:
    """Return the usual order of day and month for the separator, and warn that it is a guess."""
    month_first = _month_first(day_first)
    guess, other = (month_first, day_first) if "/" in day_first else (day_first, month_first)
    warn(
        f"infer: column '{name}': '{example}' may begin with the day or the month, and the values do not show which; "
        f'assuming {guess}; if that is wrong, write format = "{other}" in the schema'
    )
    return guess
