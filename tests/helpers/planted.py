"""A small log whose clicks depend on pairs of values."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl

from fm2 import Field, Schema

QUICK = {"epochs": 2, "batch_size": 64, "evaluations_per_epoch": 2, "patience": 100}
LEARNED = {
    **QUICK,
    "epochs": 6,
    "learning_rate": 0.01,
    "l2": 0,
    "field_dropout": 0,
    "ema_decay": 0.9,
    "embedding_std": 0.2,
}
SCHEMA = Schema([Field(f"c{i}", min_count=1) for i in range(4)], label="click")


def planted(rows: int, seed: int = 0, values: int = 12) -> pl.DataFrame:
    """Return rows whose clicks depend on pairs of values, so that only models with interactions predict them."""
    random = np.random.default_rng(seed)
    columns = random.integers(0, values, (rows, 4))
    strength = np.random.default_rng(99).normal(size=(4, 4, values, values))
    logits = sum(strength[i, j, columns[:, i], columns[:, j]] for i, j in itertools.combinations(range(4), 2))
    clicks = random.random(rows) < 1 / (1 + np.exp(-logits))
    names = {f"c{i}": [f"v{value}" for value in columns[:, i]] for i in range(4)}
    return pl.DataFrame({"click": clicks, **names})
