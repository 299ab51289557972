"""A log whose schema has crosses, and the texts of their features, written out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fm2 import Dataset, Field, Schema

UNKNOWN = "<unknown>"
SCHEMA = Schema(
    [
        Field("user_item", cross=["user", "item"], min_count=2),
        Field("user", min_count=3),
        Field("item", min_count=2),
        Field("cost", "numeric", transform="quantiles", buckets=5, min_count=1),
        Field("visits", "numeric", min_count=1),
        Field("device", hash_bits=4),
        Field("time", "timestamp", min_count=1),
        Field("item_hour", cross=["item", "time_hour"], hash_bits=7),
        Field("device_visits", cross=["device", "visits"], min_count=3),
        Field("user_cost_device", cross=["user", "cost", "device"], min_count=1),
        Field("hashed_device", cross=["device", "user"], hash_bits=9),
        Field("tags", multivalued=True, min_count=1),
    ],
    label="click",
    missing=("none",),
)
CROSSES = [field.name for field in SCHEMA.fields if field.cross]


def log_of(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return rows of texts. Items contain the separator of crosses, and some values are missing."""
    random = np.random.default_rng(seed)
    items = ["a × b", "a", "b", "\\", "\\×", " ×", "", "none", "×", "a longer item than eight bytes", "ü"]
    user = random.zipf(1.4, rows) % 60
    item = random.integers(0, len(items), rows)
    click = random.random(rows) < np.where((user + item) % 3 == 0, 0.7, 0.2)
    return pl.DataFrame(
        {
            "click": click.astype(int),
            "user": [f"u{number}" for number in user],
            "item": [items[number] for number in item],
            "cost": random.choice(["0.5", "1", "2.25", "17", "1e3", ""], rows),
            "visits": random.choice(["0", "3", "12", "700", "none"], rows),
            "device": [f"d{number}" for number in random.integers(0, 100, rows)],
            "time": [f"2024-05-{day:02} {hour:02}:00:00" for day, hour in random.integers([1, 0], [29, 24], (rows, 2))],
            "tags": random.choice(["x|y", "y", "x|z|y", ""], rows),
        }
    )


def text_of(values: Sequence[str | None]) -> str:
    """Return the text of a combination of values, or ``<unknown>``."""
    if UNKNOWN in values:
        return UNKNOWN
    escaped = [(value or "").replace("\\", "\\\\").replace("×", "\\×") for value in values]
    return " × ".join(escaped)


def combinations_of(dataset: Dataset, name: str) -> dict[int, str]:
    """Return the text of the combination of each row, frequent or not, by row number."""
    field = dataset.schema.fields[dataset.schema.names.index(name)]
    texts: dict[int, str] = {}
    for split in (dataset.train, dataset.validation, dataset.test):
        values = dataset.decode(split.encoded)
        parts = zip(*(values[part] for part in field.cross), strict=True)
        texts |= dict(zip(split.rows.tolist(), map(text_of, parts), strict=True))
    return texts


def features_of(dataset: Dataset, name: str) -> dict[int, str]:
    """Return the decoded feature of each row by row number."""
    features: dict[int, str] = {}
    for split in (dataset.train, dataset.validation, dataset.test):
        values = dataset.decode(split.encoded)[name]
        features |= dict(zip(split.rows.tolist(), values, strict=True))
    return features
