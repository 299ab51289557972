"""Small logs with multi-valued fields, whose clicks depend on an item, a history of items, and weighted tags."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl

from fm2 import Field, Schema

ITEMS, TAGS, GENRES = 12, 8, 5
LIST_SCHEMA = Schema(
    [
        Field("site", min_count=1),
        Field("item", min_count=1),
        Field("history", multivalued=True, shares="item", max_values=4, keep="last"),
        Field("tags", min_count=1, multivalued=True, weighted=True, pooling="sum"),
    ],
    label="click",
)

EVERYTHING_SCHEMA = LIST_SCHEMA.replace(
    fields=[
        *LIST_SCHEMA.fields,
        Field("genres", min_count=1, multivalued=True, weight_column="scores", pooling="sqrt"),
        Field("price_knots", "numeric", column="price", transform="interpolate", knots=5),
        Field("price_linear", "numeric", column="price", transform="linear"),
        Field("site_hash", column="site", hash_bits=4),
        Field("last_genre", multivalued=True, column="genres", max_values=1, keep="last", shares="site_hash"),
    ],
    weight="w",
)


def list_log(rows: int, seed: int = 0, items: int = ITEMS) -> pl.DataFrame:
    """Return rows as text; some histories are empty, and some tags are missing."""
    random, planted = np.random.default_rng(seed), np.random.default_rng(99)
    site, item = random.integers(0, 5, rows), random.integers(0, items, rows)
    taste, topic = planted.normal(size=(items, items)), planted.normal(size=(5, TAGS))
    history = [random.integers(0, items, random.integers(0, 5)) for _ in range(rows)]
    tags = [random.integers(0, TAGS, random.integers(1, 4)) for _ in range(rows)]
    weights = [random.uniform(0.2, 1.5, len(cell)).round(2) for cell in tags]
    logits = np.zeros(rows)
    for row in range(rows):
        logits[row] = topic[site[row], tags[row]] @ weights[row]
        if len(history[row]):
            logits[row] += 3 * taste[item[row], history[row]].mean()
    pairs = [zip(cell, weight, strict=True) for cell, weight in zip(tags, weights, strict=True)]
    return pl.DataFrame(
        {
            "click": (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int8),
            "site": [f"s{n}" for n in site],
            "item": [f"i{n}" for n in item],
            "history": ["|".join(f"i{n}" for n in cell) for cell in history],
            "tags": ["|".join(f"t{tag}:{weight}" for tag, weight in cell) for cell in pairs],
        }
    )


def everything_log(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return the log with more columns: lists of genres with scores, a number, and a row weight."""
    random = np.random.default_rng(seed)
    genres = [random.integers(0, GENRES, random.integers(0, 4)).tolist() for _ in range(rows)]
    return list_log(rows, seed).with_columns(
        genres=pl.Series([[f"g{n}" for n in cell] for cell in genres], dtype=pl.List(pl.String)),
        scores=pl.Series(
            [random.uniform(0, 2, len(cell)).round(1).tolist() for cell in genres], dtype=pl.List(pl.Float64)
        ),
        price=pl.Series([None if random.random() < 0.1 else round(random.lognormal(), 2) for _ in range(rows)]),
        w=random.choice([0.5, 1.0, 3.0], rows),
    )


def as_python_rows(log: pl.DataFrame) -> list[dict[str, Any]]:
    """Return rows with Python lists, tuples, arrays and dicts of weights instead of texts."""
    rows = log.drop("click", "w").to_dicts()
    for row in rows:
        row["history"] = tuple(row["history"].split("|")) if row["history"] else None
        weights = Counter()  # a tag may occur twice; the field adds up their weights
        for tag, weight in (cell.split(":") for cell in row["tags"].split("|")):
            weights[tag] += float(weight)
        row["tags"] = dict(weights)
        row["genres"] = np.array(row["genres"])
    return rows
