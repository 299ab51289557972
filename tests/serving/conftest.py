"""Compiled models for the tests of the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fm2
from fm2 import Field, Schema
from fm2.engine.scorer import Scorer

ROW = {"site": "site1", "ad": "ad2", "price": 3.5, "count": 7, "time": "2024-01-03 05:00:00", "tags": ["t1", "t2"]}
SCHEMA = Schema(
    [
        Field("site"),
        Field("ad"),
        Field("price", "numeric", transform="quantiles", buckets=10),
        Field("count", "numeric"),
        Field("hour", "timestamp", column="time", part="hour"),
        Field("tags", multivalued=True),
    ],
    label="click",
)


def log(rows: int = 2000) -> pl.DataFrame:
    """Return a log with all kinds of columns."""
    random = np.random.default_rng(0)
    site = random.integers(0, 40, rows)
    return pl.DataFrame(
        {
            "click": (random.random(rows) < 0.1 + 0.02 * (site % 20)).astype(int),
            "site": [f"site{value}" for value in site],
            "ad": [f"ad{value}" for value in random.integers(0, 60, rows)],
            "price": random.lognormal(2, 1, rows).round(2),
            "count": random.integers(0, 500, rows),
            "time": [f"2024-01-{1 + value % 28:02d} {value % 24:02d}:00:00" for value in random.integers(0, 700, rows)],
            "tags": ["|".join(f"t{tag}" for tag in random.integers(0, 20, random.integers(0, 4))) for _ in range(rows)],
        }
    )


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> list[Path]:
    """Return two compiled models with the same columns."""
    directory = tmp_path_factory.mktemp("serving")
    dataset = fm2.prepare(log(), SCHEMA, directory / "data")
    paths = []
    for seed in (1, 2):
        run = directory / f"run{seed}"
        fm2.train("fmfm", dataset, out=run, epochs=2, seed=seed, learning_rate=0.02)
        paths.append(directory / f"model{seed}.fm2")
        fm2.compile(run, paths[-1])
    return paths


@pytest.fixture(scope="session")
def scorers(files) -> list[Scorer]:
    """Return the same models in this process."""
    return [fm2.load(path) for path in files]
