"""A small log with fields of every kind."""

from __future__ import annotations

import numpy as np
import polars as pl

from fm2 import Field, Schema

SCHEMA = Schema(
    [
        Field("site", min_count=1),
        Field("user", hash_bits=5),
        Field("price", "numeric", transform="quantiles", buckets=6, min_count=1),
        Field("visits", "numeric", min_count=1),
        Field("time", "timestamp", min_count=1),
    ],
    label="click",
    missing=("none", "\\N"),
)


def mixed(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return rows of texts, some of them missing."""
    random = np.random.default_rng(seed)
    columns = {
        "site": random.choice(["a", "b", "news.example", "a longer name than eight bytes", "none", "ü"], rows),
        "user": [f"u{number}" for number in random.integers(0, 100, rows)],
        "price": random.choice(["0.5", "1", "2.25", "17", "1e3", ""], rows),
        "visits": random.choice(["0", "3", "12", "700", "\\N"], rows),
        "time": [f"2024-05-{day:02} {hour:02}:00:00" for day, hour in random.integers([1, 0], [29, 24], (rows, 2))],
    }
    return pl.DataFrame({"click": random.integers(0, 2, rows), **columns})
