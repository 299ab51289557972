"""The list columns of a synthetic log: cells with several values, optionally with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fm2.data.synthetic.columns import Column, Floats, Ints, hex_codes
from fm2.errors import require
from fm2.field import Pooling

if TYPE_CHECKING:
    import polars

WEIGHTS = np.array([0.25, 0.5, 1.0, 1.5, 2.0])
WEIGHT_TEXTS = ("0.25", "0.5", "1", "1.5", "2")
POOLING: Pooling = "sqrt"
MISSING = 0.1
# Pooled values are rounded to multiples of 1/POOLED_GRID, so that sums of products with field matrices stay exact.
POOLED_GRID = 256


@dataclass(frozen=True)
class Cells:
    """The cells of a list column: the values and weights of all rows, one row after the other.

    A missing cell has the single value 0 with the weight 1.
    """

    sizes: Ints  # [rows], at least 1
    values: Ints
    weights: Floats

    def pooled(self, table: Floats) -> Floats:
        """Return for each row the weighted sum of its values' rows of a table, pooled by ``sqrt``.

        The weights of a cell are divided by the root of the sum of their squares, so that the result has about the same
        variance as one value.
        """
        starts = np.cumsum(self.sizes) - self.sizes
        sums = np.add.reduceat(table[self.values] * self.weights[:, None], starts)
        norms = np.sqrt(np.add.reduceat(self.weights**2, starts))
        rounded: Floats = np.rint(sums / norms[:, None] * POOLED_GRID) / POOLED_GRID
        return rounded


@dataclass(frozen=True)
class ListColumn:
    """A column whose cells have ``mean`` values on average; the values are those of ``column``."""

    column: Column
    mean: int
    weighted: bool

    def draw(self, rows: int, rng: np.random.Generator) -> Cells:
        """Draw the cells of rows."""
        missing = rng.random(rows) < self.column.missing
        sizes = np.where(missing, 1, 1 + rng.poisson(self.mean - 1, rows))
        chosen = rng.random(int(sizes.sum()))
        values = self.column.draw(self.column.missing + (1 - self.column.missing) * chosen)
        weights = WEIGHTS[rng.integers(len(WEIGHTS), size=len(values))] if self.weighted else np.ones(len(values))
        starts = np.cumsum(sizes) - sizes
        values[starts[missing]] = 0
        weights[starts[missing]] = 1
        return Cells(sizes, values, weights)


def plan_lists(count: int, size: int, mean: int, weighted: bool, rng: np.random.Generator) -> list[ListColumn]:
    """Plan list columns L1, L2, …, each with ``size`` values."""
    exponents = rng.uniform(1.05, 1.25, count).tolist()
    columns = [Column(f"L{i + 1}", False, size, exponent, MISSING) for i, exponent in enumerate(exponents)]
    return [ListColumn(column, mean, weighted) for column in columns]


class CellTexts:
    """Turn drawn cells into text: codes that are separated by ``|``, with weights as in ``1f3a90bc:0.5``."""

    def __init__(self, lists: Sequence[ListColumn], starts: Ints, salt: int) -> None:
        self._polars = require("polars", "train", "generating a log")
        self._lists = lists
        self._weights = self._polars.Series(WEIGHT_TEXTS)
        self._codes = [
            self._polars.Series(
                [None, *hex_codes(start + np.arange(column.column.size), salt)], dtype=self._polars.String
            )
            for column, start in zip(lists, starts, strict=True)
        ]

    @property
    def schema(self) -> dict[str, Any]:
        """The names and types of the columns."""
        return {column.column.name: self._polars.String for column in self._lists}

    def series(self, drawn: Sequence[Cells]) -> list[polars.Series]:
        """Return the columns; missing cells are null."""
        pl = self._polars
        columns = []
        for column, codes, cells in zip(self._lists, self._codes, drawn, strict=True):
            texts = codes.gather(cells.values)
            if column.weighted:
                texts = texts + ":" + self._weights.gather(np.searchsorted(WEIGHTS, cells.weights))
            rows = np.repeat(np.arange(len(cells.sizes)), cells.sizes)
            joined = pl.DataFrame({"row": rows, "text": texts}).group_by("row", maintain_order=True)
            cell = pl.col("text").str.join("|", ignore_nulls=False)
            columns.append(joined.agg(cell)["text"].alias(column.column.name))
        return columns
