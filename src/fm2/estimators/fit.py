"""From rows in memory to a run: prepared and trained in a directory that is gone afterwards."""

from __future__ import annotations

import contextlib
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

from fm2.artifacts.history import read_history
from fm2.artifacts.run_directory import HISTORY, SETTINGS
from fm2.artifacts.settings import read_settings
from fm2.data.encoder import Encoder
from fm2.data.prepare import prepare
from fm2.estimators.inputs import Labels
from fm2.schema import Schema
from fm2.training.run import Run
from fm2.training.train import train

LEAST_HELD = 4  # rows of a class: fewer tell nothing of when to stop
SHARED_MEMORY, SMALL_TABLE, MUCH_MEMORY = Path("/dev/shm"), 64e6, 2e9


@dataclass(frozen=True)
class Rows:
    """A table with its labels and, where they are not all 1, the rows' weights."""

    table: polars.DataFrame
    labels: Labels
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, table: polars.DataFrame, labels: Labels, sample_weight: Any) -> Rows:
        """Take rows together; those of no weight are as if they were not there."""
        if sample_weight is None:
            return cls(table, labels)
        weights = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        return cls(table, labels, weights).taken(np.flatnonzero(weights))

    def taken(self, places: NDArray[np.intp]) -> Rows:
        """Give some of the rows."""
        weights = None if self.weights is None else self.weights[places]
        return Rows(self.table[places], self.labels[places], weights)

    def divided(self, share: float, seed: int) -> tuple[Rows, Rows]:
        """Give rows to train with and, of both classes, a share to validate with; all for both where it is too few."""
        random = np.random.default_rng(seed)
        places = [random.permutation(np.flatnonzero(self.labels == label)) for label in (0, 1)]
        held = [some[: round(share * len(some))] for some in places]
        if min(len(some) for some in held) < LEAST_HELD:
            return self, self
        validation = np.sort(np.concatenate(held))
        return self.taken(np.setdiff1d(np.arange(len(self.labels)), validation)), self.taken(validation)


def fit_run(
    model: str, encoded: Schema | Encoder, rows: Rows, validation: Rows, settings: dict[str, Any], before: Run | None
) -> tuple[Run, dict[str, Any], list[dict[str, Any]]]:
    """Train a model, or the one ``before`` further; give the run, its settings and its history."""
    schema = encoded.schema if isinstance(encoded, Encoder) else encoded

    def source(part: Rows) -> polars.DataFrame:
        return part.table.select(schema.source_columns[1:]).with_columns(polars.Series(schema.label, part.labels))

    weights = None
    if rows.weights is not None:
        weights = np.concatenate([rows.weights, np.ones(len(validation.labels))])
    with scratch(rows.table.estimated_size()) as directory:
        dataset = prepare(
            source(rows),
            encoded,
            directory / "data",
            validation=source(validation),
            fractions=(1, 0, 0),
            threads=settings.get("threads", 0),
            progress=False,
        )
        if before:
            (directory / "before").mkdir()
            before.save(directory / "before")
        start = directory / "before" if before else None
        out = directory / "run"
        run = train(model, dataset, out, start=start, row_weights=weights, **settings)
        return run, read_settings(out / SETTINGS), read_history(out / HISTORY)


@contextlib.contextmanager
def scratch(table_bytes: float = 0) -> Iterator[Path]:
    """Give a directory for a while: in memory where the table is small, for there the many small files cost nothing."""
    small = table_bytes < SMALL_TABLE and SHARED_MEMORY.is_dir()
    place = SHARED_MEMORY if small and shutil.disk_usage(SHARED_MEMORY).free > MUCH_MEMORY else None
    with tempfile.TemporaryDirectory(prefix="fm2-", dir=place) as directory:
        yield Path(directory)
