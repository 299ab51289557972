"""Compare the native table operations with one another: lookups, updates, and whole steps of LR and FM.

    python benchmarks/tables.py [--threads 2] [--rows 500000] [--rounds 20]

39 fields, a million features with Zipf-distributed frequencies, ids in random order. All operations run a few batches
in turn; the best round counts. A step of LR or FM includes loading ids, logits, the loss gradient and the update.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fm2._native import Optimizer, update
from fm2.training.tables import (
    EmbeddingTable,
    adagrad,
    adam,
    fm_logits,
    linear_logits,
    log_loss,
    minibatch,
)
from timing import in_turn, seconds

N_FIELDS = 39
Step = Callable[[int], None]


def field_sizes() -> list[int]:
    """Return 13 fields of 100 features, like bucketed numbers, and 26 of ten to a few hundred thousand."""
    categorical = np.geomspace(10, 400_000, 26)
    return [100] * 13 + [int(size) for size in categorical * (1e6 / categorical.sum())]


def draw_ids(sizes: list[int], rows: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw ids with frequencies 1 / rank^1.05; ranks are in random order."""
    ids = np.empty((rows, len(sizes)), dtype=np.int32)
    for field, size in enumerate(sizes):
        share = np.cumsum(np.arange(1, size + 1) ** -1.05)
        ranks = np.searchsorted(share, rng.random(rows) * share[-1])
        ids[:, field] = rng.permutation(size)[np.minimum(ranks, size - 1)]
    return ids


class Operations:
    """The measured operations, for one batch size."""

    def __init__(self, sizes: list[int], ids: NDArray[np.int32], batch_size: int, threads: int) -> None:
        rng = np.random.default_rng(0)
        self.sizes, self.ids, self.batch_size, self.threads = sizes, ids, batch_size, threads
        self.order = rng.permutation(len(ids)).astype(np.int32)
        self.labels = (rng.random(len(ids)) < 0.25).astype(np.float32)
        self.batch = minibatch(sizes)
        self.rng = rng

    def load(self, number: int) -> None:
        self.batch.load(self.ids, [], self.rows(number), self.threads)

    def rows(self, number: int) -> NDArray[np.int32]:
        begin = number * self.batch_size % (len(self.order) - self.batch_size)
        return self.order[begin : begin + self.batch_size]

    def table(self, dim: int, optimizer: Optimizer) -> EmbeddingTable:
        floats = sum(self.sizes) * dim
        return EmbeddingTable(
            self.sizes, dim, optimizer, weights=self.rng.standard_normal(floats, dtype=np.float32) / 100
        )

    def gather(self, dim: int, optimizer: Optimizer | None = None) -> Step:
        """Look up rows, and with an optimizer update them."""
        table = self.table(dim, optimizer or adagrad())
        out = np.empty((self.batch_size, table.width), dtype=np.float32)
        gradient = self.rng.standard_normal(out.shape, dtype=np.float32) * np.float32(0.001)

        def step(number: int) -> None:
            self.load(number)
            table.gather(self.batch, out, threads=self.threads)
            if optimizer:
                update(self.batch, [table.update_by_rows(gradient)], number, self.threads)

        return step

    def lr(self) -> Step:
        table = self.table(1, adagrad())

        def step(number: int) -> None:
            self.load(number)
            logits = linear_logits(table, self.batch, threads=self.threads)
            _, slopes = log_loss(logits, self.labels[self.rows(number)])
            update(self.batch, [table.update_by_logits(slopes)], number, self.threads)

        return step

    def fm(self, dim: int) -> Step:
        linear, factors = self.table(1, adagrad()), self.table(dim, adagrad())

        def step(number: int) -> None:
            self.load(number)
            logits, sums = fm_logits(linear, factors, self.batch, self.threads)
            _, slopes = log_loss(logits, self.labels[self.rows(number)])
            update(
                self.batch,
                [linear.update_by_logits(slopes), factors.update_by_sums(slopes, sums)],
                number,
                self.threads,
            )

        return step

    def all(self) -> dict[str, Step]:
        return {
            "load": self.load,
            "gather K=16": self.gather(16),
            "gather K=4": self.gather(4),
            "gather + Adagrad K=16": self.gather(16, adagrad()),
            "gather + Adagrad K=4": self.gather(4, adagrad()),
            "gather + Adam K=16": self.gather(16, adam()),
            "gather + Adam K=4": self.gather(4, adam()),
            "LR step": self.lr(),
            "FM step K=4": self.fm(4),
            "FM step K=16": self.fm(16),
        }


def measure(steps: dict[str, Step], batches: int, rounds: int) -> dict[str, float]:
    """Return the best time per batch of every step."""
    times = in_turn({name: batch_timer(step, batches) for name, step in steps.items()}, rounds)
    return {name: min(rounds) for name, rounds in times.items()}


def batch_timer(step: Step, batches: int) -> Callable[[], float]:
    """Return a measurement that continues with the next batches at every call."""
    numbers = itertools.count(1)
    return lambda: seconds(lambda: step(next(numbers)), batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    sizes = field_sizes()
    ids = draw_ids(sizes, options.rows, np.random.default_rng(1))
    print(f"{options.rows} rows, {sum(sizes)} features, {options.threads} threads")
    print(f"{'':24}{'batch':>8}{'rows/s':>14}{'lookups/s':>16}")
    for batch_size in (1024, 4096, 8192):
        operations = Operations(sizes, ids, batch_size, options.threads)
        best = measure(operations.all(), max(2, 16384 // batch_size), options.rounds)
        for name, time in best.items():
            rate = batch_size / time / 1e6
            print(f"{name:24}{batch_size:8}{rate:12.2f} M{rate * N_FIELDS:14.0f} M")


if __name__ == "__main__":
    main()
