"""Random batches for the tests of native models."""

from __future__ import annotations

import numpy as np

from fm2._native import Minibatch
from fm2.data.rows import EncodedRows
from fm2.training.tables import minibatch


def loaded(rows: EncodedRows | np.ndarray, sizes: np.ndarray | list[int], threads: int = 0) -> Minibatch:
    batch = minibatch(sizes)
    encoded = EncodedRows.of(rows)
    batch.load(encoded.ids, encoded.native_lists(), threads=threads)
    return batch


def draw(sizes: list[int], rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return random ids, some of them frequent, and random labels; every third label is a click rate."""
    rng = np.random.default_rng(seed)
    ids = np.stack([(rng.random(rows) ** 2 * size).astype(np.int32) for size in sizes], axis=1)
    labels = rng.integers(0, 2, rows).astype(np.float32)
    labels[2::3] = rng.random(len(labels[2::3]))
    return ids, labels


def sizes_of(n: int) -> list[int]:
    return [(3, 1, 7, 20)[i % 4] for i in range(n)]
