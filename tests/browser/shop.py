"""The models that the browser tests serve: those of a shop whose log has a column of every kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from tests.helpers.clicks import click_log

import fm2
from fm2 import Field, Schema

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
TAGS = ("sale", "new", "outdoor", "kitchen", "garden", SCRIPT)
SCHEMA = Schema(
    [
        Field("time", "timestamp", part="hour"),
        Field("user", min_count=2),
        Field("site", min_count=1),
        Field("ad", min_count=1),
        Field("size", min_count=1),
        Field("price", "numeric", transform="quantiles", buckets=8),
        Field("device", hash_bits=6),
        Field("tags", multivalued=True, min_count=1),
        Field("history", multivalued=True, weighted=True, shares="ad"),
    ],
    label="click",
)


def shop_log(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return the click log of the documentation's shop with a device, tags and a weighted history of ads."""
    random = np.random.default_rng(seed)
    tags = [random.choice(len(TAGS), random.integers(1, 4), replace=False) for _ in range(rows)]
    history = [random.choice(60, random.integers(0, 4), replace=False) for _ in range(rows)]
    return click_log(rows, seed).with_columns(
        device=pl.Series([f"device{n}" for n in random.integers(0, 500, rows)]),
        tags=pl.Series(["|".join(TAGS[n] for n in cell) for cell in tags]),
        history=pl.Series(["|".join(f"ad{n}:{random.uniform(0.2, 2):.1f}" for n in cell) for cell in history]),
    )


def compile_shop(folder: Path, out: Path, seed: int = 0, calibrate: bool = True) -> Path:
    """Train a small FmFM on the shop's log and compile it."""
    run = fm2.train("fmfm", _data(folder), folder / f"run{seed}", dim=4, epochs=2, threads=1, seed=seed)
    if calibrate:
        fm2.calibrate(run.path, folder / "data")
    fm2.compile(run.path, out, plan="direct")
    return out


def _data(folder: Path) -> Path:
    if not (folder / "data").exists():
        fm2.prepare(shop_log(6000), SCHEMA, folder / "data")
    return folder / "data"
