"""Generate a log with the fields of Criteo's display advertising log, including its millions of rare values.

Labels come from the same kind of planted model as those of ``fm2.generate``, whose features are the frequent values. In
Criteo's log, nine tenths of the values occur only a few times. They make the vocabularies large while the log is read,
and become unknown values; here they have the planted weights of a missing cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fm2.data.presets import CRITEO_FIELD_SIZES, CRITEO_NUMERIC_FIELDS
from fm2.data.synthetic.columns import RawValues, plan_columns
from fm2.data.synthetic.planted import Planted, plant_columns

ROWS = 45_840_617
# The number of distinct values of the 26 categorical fields in all rows of the log.
DISTINCT = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)
# With these, most frequent values of large fields occur at least 8 times in the whole log, as in Criteo's.
LARGE_FIELD, LARGE_EXPONENT = 100_000, 0.9
OCCURRENCES = 1.5  # of a possible rare value on average; a Poisson distribution, in which few reach 8
CHUNK_ROWS = 1 << 16
SEED = 0

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CriteoLog:
    """A planted model of the frequent values, and for each field the number of possible rare values and their share."""

    model: Planted
    rare_values: list[int]
    rare_shares: list[float]
    starts: Ints  # of the fields' values, with the rare ones
    raw_values: RawValues
    rows: int

    @classmethod
    def plan(cls, rows: int, seed: int = SEED) -> CriteoLog:
        """Plan a log of so many rows. Its rare values are as frequent as in the whole log, so there are fewer."""
        rng = np.random.default_rng(seed)
        numeric, fields = CRITEO_NUMERIC_FIELDS, len(CRITEO_FIELD_SIZES)
        drawn = plan_columns(fields, sum(CRITEO_FIELD_SIZES), rng)  # for the exponents and the missing cells
        columns = [
            replace(column, size=size - 1)
            if size <= LARGE_FIELD
            else replace(column, size=size - 1, exponent=LARGE_EXPONENT, missing=0.0)
            for column, size in zip(drawn, CRITEO_FIELD_SIZES, strict=True)
        ]
        distinct = [0] * numeric + [
            max(every - size, 0) for every, size in zip(DISTINCT, CRITEO_FIELD_SIZES[numeric:], strict=True)
        ]
        possible = [count / (1 - np.exp(-OCCURRENCES)) for count in distinct]
        shares = [OCCURRENCES * count / ROWS for count in possible]
        values = [int(count * rows / ROWS) for count in possible]
        model = plant_columns(columns, [], rng)
        every = [replace(column, size=column.size + count) for column, count in zip(columns, values, strict=True)]
        starts = np.cumsum([0] + [column.size + 1 for column in every])[:-1]
        return cls(model, values, shares, starts, RawValues(every, starts, int(rng.integers(1 << 32))), rows)

    def frames(self, seed: int = SEED) -> Iterator[pl.DataFrame]:
        """Yield the log, some rows at a time."""
        for number, done in enumerate(range(0, self.rows, CHUNK_ROWS), start=1):
            rng = np.random.default_rng([seed, number])
            values = self.model.draw(min(CHUNK_ROWS, self.rows - done), rng) - self.model.starts
            rare = {}
            for index, (count, share) in enumerate(zip(self.rare_values, self.rare_shares, strict=True)):
                if count:
                    rows = np.flatnonzero(rng.random(len(values), np.float32) < share)
                    rare[index] = rows, rng.integers(count, size=len(rows)) + self.model.columns[index].size + 1
                    values[rows, index] = 0
            labels = rng.random(len(values)) < self.model.probabilities(values + self.model.starts)
            for index, (rows, chosen) in rare.items():
                values[rows, index] = chosen
            yield self.raw_values.frame(labels, values + self.starts, rng)

    def write(self, path: Path) -> None:
        """Write the log as text, like Criteo's: no header, values separated by tabs."""
        with path.open("wb") as file:
            for frame in self.frames():
                frame.write_csv(file, include_header=False, separator="\t")
