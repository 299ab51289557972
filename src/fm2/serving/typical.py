"""Typical values of a model's columns, from its vocabularies, for forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from fm2.data.vocabulary import Vocabulary
from fm2.engine.scorer import Scorer
from fm2.field import Field

MOST = 50
A_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def describe_columns(scorer: Scorer) -> list[dict[str, Any]]:
    """Describe the raw columns: what they mean, and typical values, most frequent first."""
    return [_describe(scorer, name) for name in scorer.columns]


def _describe(scorer: Scorer, name: str) -> dict[str, Any]:
    fields = scorer.schema.fields
    owner = next((field for field in fields if field.weight_column == name and field.column != name), None)
    if owner is not None:
        number = {"kind": "numeric", "multivalued": True, "weighted": False, "format": None, "size": None}
        return {"name": name, **number, "weights_of": owner.column, "values": [1]}
    index = next(index for index, field in enumerate(fields) if field.column == name)
    field, vocabulary = fields[index], scorer.vocabularies[index]
    counted = field.kind == "categorical" and not vocabulary.hashed
    return {
        "name": name,
        "kind": field.kind,
        "multivalued": field.multivalued,
        "weighted": field.weighted and not field.weight_column,
        "weights_of": None,
        "format": field.format,
        "separator": field.separator or None,
        "size": len(vocabulary) - 1 if counted else None,
        "values": list(itertools.islice(_values(field, vocabulary), MOST)),
    }


def _values(field: Field, vocabulary: Vocabulary) -> Iterator[Any]:
    if field.kind == "timestamp":
        return _times(field)
    if field.kind == "numeric":
        return _numbers(field, vocabulary)
    return _texts(vocabulary)


def _texts(vocabulary: Vocabulary) -> Iterator[str]:
    """Return the known values; a hashed field has none."""
    for id in range(1, 1 if vocabulary.hashed else min(len(vocabulary), MOST + 2)):
        try:
            text = vocabulary.value(id)
        except UnicodeDecodeError:
            continue
        if text is not None:
            yield text


def _numbers(field: Field, vocabulary: Vocabulary) -> Iterator[float]:
    """Return a number in each of the most frequent ranges, or the knots."""
    boundaries = vocabulary.boundaries.tolist()
    if field.transform == "linear" and len(boundaries) >= 2:
        mean, deviation = boundaries[:2]
        yield from (_rounded(mean + step * deviation) for step in (0, -1, 1))
    elif field.transform == "interpolate":
        yield from (_rounded(knot) for knot in boundaries)
    else:
        for text in _texts(vocabulary):
            if field.transform == "quantiles":
                yield _rounded(_in_bucket(int(text), boundaries))
            else:
                yield _inverse_log_square(int(text))


def _in_bucket(bucket: int, boundaries: list[float]) -> float:
    """Return a number in a bucket: the middle, or the boundary of an outer one."""
    if not boundaries:
        return 0.0
    if bucket == 0:
        return boundaries[0] - max(abs(boundaries[0]) * 0.01, 1e-3)
    return boundaries[-1] if bucket >= len(boundaries) else (boundaries[bucket - 1] + boundaries[bucket]) / 2


def _inverse_log_square(bucket: int) -> float:
    """Return a number x with ceil(ln(x)² + 1) = bucket; up to 2, it is its own bucket."""
    return bucket if bucket <= 2 or bucket > 700 else math.ceil(math.exp(math.sqrt(bucket - 1.5)))


def _times(field: Field) -> Iterator[str]:
    """Return the hours of a day, or the days of a week if the format has no hours."""
    format = field.format or ""
    moments = [A_DAY + timedelta(hours=hour) for hour in range(24)]
    if "hour" not in field.time_parts:
        moments = [A_DAY + timedelta(days=day) for day in range(7)]
    for moment in moments:
        seconds = int(moment.timestamp())
        yield {"unix": str(seconds), "unix_ms": str(seconds * 1000)}.get(format) or moment.strftime(format)


def _rounded(number: float) -> float:
    """Return a number with few digits, as JSON can show it."""
    return float(f"{number:.6g}")
