"""Transforms of numbers: what they learn from the training rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from fm2 import Field, Schema, prepare
from fm2.data import counting
from fm2.data.description import describe
from fm2.data.number_ranges import feature_text
from fm2.data.numbers import bucket_starts


def literal_buckets(numbers: list[float], buckets: int) -> list[list[float]]:
    """Put the values into buckets, one value after the other."""
    counts = Counter(numbers)
    values = sorted(counts)
    if len(values) <= buckets:
        return [[value] for value in values]
    frequent: set[float] = set()
    while True:
        rest = sum(counts[value] for value in values if value not in frequent)
        size = rest / (buckets - len(frequent))
        added = {value for value in values if value not in frequent and counts[value] >= size}
        if not added:
            break
        frequent |= added
    segments: list[list[float]] = [[]]  # the values between the frequent ones
    for value in values:
        if value in frequent:
            segments.append([])
        else:
            segments[-1].append(value)
    result: list[list[float]] = []
    waiting: list[float] = []  # the first values, if they have no bucket
    for segment, value in zip(segments, [None, *sorted(frequent)], strict=True):
        if value is not None:
            result.append([*waiting, value])
            waiting = []
        mass = sum(counts[other] for other in segment)
        parts = round(mass / size)
        if parts:
            split: dict[int, list[float]] = {}
            before = 0
            for other in segment:
                split.setdefault(int((before + counts[other] / 2) * parts / mass), []).append(other)
                before += counts[other]
            result.extend(split.values())
        elif result:
            result[-1].extend(segment)
        else:
            waiting = segment
    return result


tied = st.lists(st.sampled_from([*range(-2, 12), *[0] * 20, *[5] * 9, *[11] * 9]), min_size=1, max_size=200)


@given(numbers=tied, buckets=st.sampled_from([2, 3, 4, 8, 10]))
def test_frequent_values_have_buckets_of_their_own(numbers, buckets):
    starts = bucket_starts(np.array(numbers, np.float32), buckets)
    assert starts.tolist() == [values[0] for values in literal_buckets(numbers, buckets)]


def test_a_zero_inflated_column_is_split_where_it_is_not_zero(tmp_path):
    numbers = [0] * 900 + list(range(1, 101))
    table = pl.DataFrame({"y": [i % 2 for i in range(1000)], "n": numbers})
    schema = Schema([Field("n", "numeric", transform="quantiles", buckets=6)], "y")
    dataset = prepare(table, schema, tmp_path / "data", fractions=(1, 0, 0))
    assert dataset.vocabularies[0].boundaries.tolist() == [1, 21, 41, 61, 81]
    assert dataset.vocabularies[0].counts.tolist() == [900, 20, 20, 20, 20, 20]


def test_values_without_ties_are_split_evenly():
    numbers = np.random.default_rng(0).normal(size=9000).astype(np.float32)
    counts = np.bincount(np.searchsorted(bucket_starts(numbers, 9), numbers, side="right"))
    assert counts.tolist() == [0, *[1000] * 9]


def test_the_default_number_of_buckets_depends_on_the_rows_with_a_number(tmp_path, monkeypatch):
    numbers = [float(i) if i < 8000 else None for i in range(16_000)]  # half of them are missing
    table = pl.DataFrame({"y": [0, 1] * 8000, "n": numbers})
    schema = Schema([Field("n", "numeric", transform="quantiles")], "y")
    dataset = prepare(table, schema, tmp_path / "data", fractions=(1, 0, 0))
    assert len(dataset.vocabularies[0].boundaries) + 1 == 10  # 8000 ** (1/3) / 2
    assert dataset.schema == schema
    counted = table.group_by("n").agg(pl.col("y").sum(), pl.len().alias("shown"))
    aggregated = prepare(counted, schema.replace(impressions="shown"), tmp_path / "counted", fractions=(1, 0, 0))
    np.testing.assert_array_equal(aggregated.vocabularies[0].boundaries, dataset.vocabularies[0].boundaries)
    monkeypatch.setattr(counting, "NUMBER_SAMPLE", 4000)  # every fourth row
    sampled = prepare(table, schema, tmp_path / "sampled", fractions=(1, 0, 0))
    assert len(sampled.vocabularies[0].boundaries) + 1 == 10


def test_rare_buckets_are_merged_with_a_neighbor():
    numbers = np.repeat([1.0, 2.0, 3.0, 7.0, 8.0, 9.0], [5, 1, 2, 4, 1, 1]).astype(np.float32)
    assert bucket_starts(numbers, 10).tolist() == [1, 2, 3, 7, 8, 9]
    assert bucket_starts(numbers, 10, min_count=3).tolist() == [1, 2, 7]
    assert bucket_starts(numbers, 10, min_count=100).tolist() == [1]
    assert bucket_starts(numbers[:0], 10, min_count=3).tolist() == []


def test_features_are_described_by_the_range_of_their_numbers(tmp_path):
    numbers = [*range(-2, 400), 5000, 123_456_789]
    log = pl.DataFrame({"y": [0, 1] * (len(numbers) // 2), "x": numbers})
    fields = [
        Field("square", "numeric", column="x", min_count=1),
        Field("bucket", "numeric", column="x", transform="quantiles", buckets=7, min_count=1),
        Field("knots", "numeric", column="x", transform="interpolate", knots=3, min_count=1),
    ]
    dataset = prepare(log, Schema(fields, label="y"), tmp_path / "data", fractions=(1, 0, 0))
    for index, field in enumerate(fields[:2]):
        vocabulary, ids = dataset.vocabularies[index], dataset.train.ids[:, index]
        members = {id: [numbers[row] for row in dataset.train.rows[ids == id]] for id in set(ids.tolist())}
        for id, expected in members.items():
            text = feature_text(field, vocabulary, id)
            assert [number for number in numbers if _contains(text, number)] == sorted(expected), text
    described = {field["name"]: field["most_frequent"] for field in describe(dataset)["fields"]}
    assert " < " in described["bucket"][0]["value"]
    assert " to " in described["square"][0]["value"]
    assert float(described["knots"][0]["value"]) in numbers


def _contains(text: str, number: int) -> bool:
    if "x" in text:
        low, _, high = (part.strip(" ≤<") for part in text.partition("x"))
        return float(low or "-inf") <= number < float(high or "inf")
    low, _, high = text.partition(" to ")
    return int(low) <= number <= int(high or low)
