"""From rows in memory to a run, prepared and trained in a temporary directory."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from fm2.artifacts.run_directory import HISTORY, SETTINGS, read_history
from fm2.artifacts.settings import read_settings
from fm2.data.encoder import Encoder
from fm2.data.prepare import prepare
from fm2.estimators.inputs import Labels
from fm2.schema import Schema
from fm2.training.run import Run
from fm2.training.train import train

# Of a small class, a quarter is held out, up to FEW_HELD_OUT rows: without early stopping, models fit the noise. With
# fewer than MIN_HELD_OUT rows, it would stop at random.
FEW_HELD_OUT, MIN_HELD_OUT = 10, 2
SHARED_MEMORY, SMALL_TABLE, ENOUGH_MEMORY = Path("/dev/shm"), 64e6, 2e9


@dataclass(frozen=True)
class Rows:
    """A table with its labels and, unless all are 1, its row weights."""

    table: polars.DataFrame
    labels: Labels
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, table: polars.DataFrame, labels: Labels, sample_weight: Any) -> Rows:
        """Combine a table, labels and weights; rows of weight zero are dropped."""
        if sample_weight is None:
            return cls(table, labels)
        weights = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        return cls(table, labels, weights).take(np.flatnonzero(weights))

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """Return the rows at some indices."""
        weights = None if self.weights is None else self.weights[indices]
        return Rows(self.table[indices], self.labels[indices], weights)

    def split(self, share: float, seed: int) -> tuple[Rows, Rows]:
        """Return training rows and a share of both classes for validation; all rows for both if that is too few.

        >>> labels = np.array([0, 1] * 30)
        >>> parts = Rows(polars.DataFrame({"x": labels}), labels).split(0.1, seed=0)
        >>> [len(part.labels) for part in parts]
        [44, 16]
        """
        if not share:
            return self, self
        random = np.random.default_rng(seed)
        by_class = [random.permutation(np.flatnonzero(self.labels == label)) for label in (0, 1)]
        few = [min(math.ceil(len(indices) / 4), FEW_HELD_OUT) for indices in by_class]
        shares = [max(round(share * len(indices)), least) for indices, least in zip(by_class, few, strict=True)]
        held_out = [indices[:number] for indices, number in zip(by_class, shares, strict=True)]
        if min(len(indices) for indices in held_out) < MIN_HELD_OUT:
            return self, self
        validation = np.sort(np.concatenate(held_out))
        return self.take(np.setdiff1d(np.arange(len(self.labels)), validation)), self.take(validation)


def fit_run(
    model: str, encoding: Schema | Encoder, rows: Rows, validation: Rows, settings: dict[str, Any], start: Run | None
) -> tuple[Run, dict[str, Any], list[dict[str, Any]]]:
    """Train a model, optionally from a ``start``; return the run, its settings and its history."""
    schema = encoding.schema if isinstance(encoding, Encoder) else encoding

    def source(part: Rows) -> polars.DataFrame:
        return part.table.select(schema.feature_columns).with_columns(polars.Series(schema.label, part.labels))

    weights = None
    if rows.weights is not None:
        weights = np.concatenate([rows.weights, np.ones(len(validation.labels))])
    with scratch(rows.table.estimated_size()) as directory:
        dataset = prepare(
            source(rows),
            encoding,
            directory / "data",
            validation=source(validation),
            fractions=(1, 0, 0),
            threads=settings.get("threads", 0),
            progress=False,
        )
        out, first = directory / "run", directory / "first"
        if start:
            first.mkdir()
            start.save(first)
        options = {"row_weights": weights, "progress": False, **settings}
        options["verify"] = False  # the files have just been written
        run = train(model, dataset, out, start=first if start else None, **options)
        return run, read_settings(out / SETTINGS), read_history(out / HISTORY)


@contextlib.contextmanager
def scratch(table_bytes: float = 0) -> Iterator[Path]:
    """Create a temporary directory, in memory if the table is small: many small files are cheap there."""
    small = table_bytes < SMALL_TABLE and SHARED_MEMORY.is_dir()
    parent = SHARED_MEMORY if small and shutil.disk_usage(SHARED_MEMORY).free > ENOUGH_MEMORY else None
    with tempfile.TemporaryDirectory(prefix="fm2-", dir=parent) as directory:
        yield Path(directory)
