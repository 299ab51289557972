"""The native Poly2, and the paper's equation 3 and the optimizers' definitions as float64 loops.

A field has any number of weighted values; a single-valued one has one value of weight 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from tests.helpers import literal
from tests.helpers.batches import loaded
from tests.helpers.field_aware import Row, Rows
from tests.helpers.lists import rows_of_values

from fm2._native import Poly2
from fm2.data.rows import EncodedRows
from fm2.training.tables import Optimizer, adagrad, ftrl

TILE = 32  # rows that are scored before the first of them updates a weight
LINEAR_TILE = 256  # the same for a model without pairs
BITS = 6  # few enough for pairs to share weights


class Model:
    """The native model, with weights that are not zero. Without bits there are no pairs."""

    def __init__(self, sizes: list[int], rule: Optimizer, bits: int = BITS, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.sizes, self.bits = np.array(sizes, dtype=np.int32), bits
        self.first = np.cumsum(self.sizes) - self.sizes
        cell, pairs = Poly2.cell(rule), 2**bits if bits else 0
        self.pairs, self.linear, self.bias = (np.zeros((n, cell), np.float32) for n in (pairs, self.sizes.sum(), 1))
        for cells in (self.pairs, self.linear, self.bias):
            cells[:] = rng.random(cells.shape) + 0.1
            cells[:, 0] -= 0.6
        self.bias = self.bias[0]
        self.native = Poly2(self.sizes, bits, self.pairs, self.linear, self.bias)

    def cells(self, row: Row) -> Iterator[tuple[str, int, float]]:
        """Give the tables, the numbers and the factors of the weights that equation 3 adds up for a row, in order."""
        yield "bias", 0, 1.0
        for field, values in enumerate(row):
            for id, weight in values:
                yield "linear", int(self.first[field] + id), weight
        everything = [(field, id, weight) for field, values in enumerate(row) for id, weight in values]
        for (i, a, x), (j, b, y) in combinations(everything, 2):
            if i != j and self.bits:
                yield "pairs", literal.pair_hash((i, a), (j, b), self.bits), x * y

    def state(self) -> dict[str, np.ndarray]:
        tables = {"bias": self.bias[None], "linear": self.linear, "pairs": self.pairs}
        return {name: table.astype(np.float64) for name, table in tables.items()}

    def score(self, rows: Rows, **options: object) -> np.ndarray:
        logits = np.empty(len(rows), dtype=np.float32)
        self.native.score(loaded(rows, self.sizes), logits, **options)
        return logits

    def literal_logits(self, rows: list[Row], state: dict[str, np.ndarray]) -> list[float]:
        """Return the logits of rows with the weights of a state."""
        return [sum(factor * state[name][number][0] for name, number, factor in self.cells(row)) for row in rows]


def by_adagrad(cell: np.ndarray, g: float, rate: float, l1: float, l2: float) -> None:
    g += l2 * cell[0]
    cell[1] += g**2
    cell[0] -= rate * g / cell[1] ** 0.5


def by_ftrl(cell: np.ndarray, g: float, rate: float, l1: float, l2: float) -> None:
    sigma = ((cell[2] + g**2) ** 0.5 - cell[2] ** 0.5) / rate
    cell[1] += g - sigma * cell[0]
    cell[2] += g**2
    beyond = max(abs(cell[1]) - l1, 0)
    cell[0] = -np.sign(cell[1]) * beyond / ((1 + cell[2] ** 0.5) / rate + l2)


RULES = {
    "adagrad": (adagrad(0.05, l2=0.01), adagrad(0.1, l2=0.02), by_adagrad, 0.0),
    "ftrl": (ftrl(0.05, l1=0.2, l2=0.01), ftrl(0.1, l1=0.2, l2=0.02), by_ftrl, 0.2),
}


def literal_steps(
    model: Model, rule: str, rows: Rows, labels: np.ndarray, row_weights: np.ndarray
) -> tuple[dict[str, np.ndarray], float]:
    """Train a copy of the model, a tile at a time; every occurrence of a weight moves it."""
    _, _, move, l1 = RULES[rule]
    settings = {"pairs": (0.05, l1, 0.01), "linear": (0.1, l1, 0.02), "bias": (0.1, 0.0, 0.0)}
    now, losses, everything = model.state(), 0.0, rows_of_values(EncodedRows.of(rows))
    length = TILE if model.bits else LINEAR_TILE
    for begin in range(0, len(everything), length):
        tile = slice(begin, begin + length)
        logits = model.literal_logits(everything[tile], now)
        for row, label, weight, logit in zip(everything[tile], labels[tile], row_weights[tile], logits, strict=True):
            losses += weight * (np.logaddexp(0, logit) - label * logit)
            slope = weight * (1 / (1 + np.exp(-logit)) - label)
            for name, number, factor in model.cells(row):
                move(now[name][number], slope * factor, *settings[name])
    return now, losses / row_weights.sum()
