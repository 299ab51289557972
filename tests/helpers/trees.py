"""A log whose schema has trees, and the features of a tree field, computed literally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fm2 import Field, Schema, _native
from fm2.data.trees import ListValue, Trees

SCHEMA = Schema(
    [
        Field("user", min_count=2),
        Field("trees", trees=["user", "item", "age", "device", "visits", "user_device"]),
        Field("item", min_count=1),
        Field("age", "numeric", transform="quantiles", buckets=10, min_count=1),
        Field("device", hash_bits=4),
        Field("visits", "numeric", min_count=1),
        Field("user_device", cross=["user", "device"], min_count=3),
        Field("tags", multivalued=True, min_count=1),
    ],
    label="click",
)
TREES = SCHEMA.names.index("trees")


def log_of(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return rows in which a click depends on the age, and on the pair of user and item."""
    random = np.random.default_rng(seed)
    user, item = random.integers(0, 40, rows), random.integers(0, 12, rows)
    age = random.normal(40, 12, rows)
    liked = np.random.default_rng(99).random((40, 12)) < 0.3
    logit = 2.5 * liked[user, item] - 1.5 + np.abs(age - 40) / 20
    return pl.DataFrame(
        {
            "click": (random.random(rows) < 1 / (1 + np.exp(-logit))).astype(int),
            "user": [f"u{number}" for number in user],
            "item": [f"i{number}" for number in item],
            "age": pl.Series(age.round(1)).scatter(np.flatnonzero(random.random(rows) < 0.1), None),
            "device": [f"d{number}" for number in random.integers(0, 30, rows)],
            "visits": random.poisson(3, rows),
            "tags": random.choice(["x|y", "y", "x|z|y", ""], rows),
        }
    )


def literal_ids(trees: Trees, parts: NDArray[np.int32], columns: Mapping[int, Sequence[Any]]) -> list[int]:
    """Walk all trees for rows of ids of the parts; columns[part] has its numbers, or lists of ids, by row."""
    pairs = [{tuple(ids): i + 1 for i, ids in enumerate(pair.combinations.tolist())} for pair in trees.pairs]
    found = []
    for number, row in enumerate(parts.tolist()):
        features = [*row]
        for pair, index in zip(trees.pairs, pairs, strict=True):
            a, b = pair.parts
            features.append(index.get((features[a], features[b]), 0))  # a or b may be an earlier pair
        cells = {part: column[number] for part, column in columns.items()}
        numbers = [_number_of(table, cells.get(part), features[part]) for part, table in trees.inputs]
        sums = np.zeros(8, np.float32)  # tree t belongs to the partial sum t % 8
        for tree, root in enumerate(trees.roots.tolist()):
            while root >= 0:
                input, threshold, low, high = trees.nodes[root].tolist()
                root = low if numbers[input] <= threshold else high
            sums[tree % 8] += trees.leaves[~root]
        total = np.float32(0)
        for partial in sums:
            total += partial
        found.append(1 + int(np.searchsorted(trees.boundaries, total, side="right")))
    return found


def _number_of(table: Any, cell: Any, feature: int) -> float:
    """Return an input of trees for a row that has this cell and this feature."""
    if isinstance(table, ListValue):
        return float(table.id != 0 and table.id in cell)
    if len(table):
        return table[feature]
    if isinstance(cell, list):
        return len(cell)
    return np.float32(_native.MISSING_NUMBER if cell is None else cell)
