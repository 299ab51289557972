"""A log with one row for several impressions, and the same log with one row per impression."""

from __future__ import annotations

import numpy as np
import polars as pl

from fm2 import Field

FIELDS = [
    Field("site", min_count=30),
    Field("user", hash_bits=5),
    Field("price", "numeric", transform="quantiles", buckets=6, min_count=1),
]


def counted_log(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return rows with 1 to 9 views and as many clicks as site and user make likely."""
    random = np.random.default_rng(seed)
    site, user, views = random.zipf(1.5, rows) % 50, random.integers(0, 20, rows), random.integers(1, 10, rows)
    logits = np.sin(site) + np.cos(3 * user) * np.sin(2 * site) - 1.2
    return pl.DataFrame(
        {
            "clicks": random.binomial(views, 1 / (1 + np.exp(-logits))),
            "views": views,
            "site": [f"s{n:02}" for n in site],
            "user": [f"u{n}" for n in user],
            "price": random.gamma(2, 20, rows).round(2),
        }
    )


def expand(log: pl.DataFrame) -> pl.DataFrame:
    """Return one row per impression; those with a click are the first ones of their row."""
    clicks, views = log["clicks"].to_numpy(), log["views"].to_numpy()
    first = np.repeat(np.cumsum(views) - views, views)
    position = np.arange(views.sum()) - first
    rows = log[np.repeat(np.arange(len(log)), views)]
    return rows.with_columns(clicks=pl.Series((position < np.repeat(clicks, views)).astype(np.int8))).drop("views")
