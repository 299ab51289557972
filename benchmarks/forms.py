"""Compare forward and backward passes of the FM family with the two bare matrix products of an FmFM.

    python benchmarks/forms.py [--rows 4096] [--fields 39] [--threads 2] [--repeats 15]

A pass is what a training step computes between gathering rows and updating them. All are timed in turn; the result is
the ratio of the best times to "bare", torch's products V S and Vᵀ (V S) alone.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fm2.models import FM, FactorizationMachine, FmFM, FvFM, FwFM
from timing import in_turn, seconds


def bare_products(rows: int, width: int) -> Callable[[], Tensor]:
    """Return a task: a product of a batch with a D × D matrix, and a product of two batches."""
    batch, matrix = torch.randn(rows, width), torch.randn(width, width)

    def run() -> Tensor:
        return batch.T @ (batch @ matrix)

    return run


def score(model: FactorizationMachine, rows: int) -> Callable[[], None]:
    """Return a task: the forward and backward pass from gathered rows."""
    gathered = {name: torch.randn(rows, table.width, requires_grad=True) for name, table in model.tables.items()}
    slope = torch.randn(rows)

    def run() -> None:
        model.zero_grad()
        for tensor in gathered.values():
            tensor.grad = None
        model.score(**gathered).backward(slope)  # type: ignore[no-untyped-call]

    return run


def main() -> None:
    """Print the times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"rows": 4096, "fields": 39, "threads": 2, "repeats": 15}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    for dim in (16, 4):
        sizes = [2] * options.fields
        tasks: dict[str, Callable[[], object]] = {"bare": bare_products(options.rows, options.fields * dim)}
        for constructor in (FmFM, FvFM, FwFM, FM):
            tasks[constructor.__name__] = score(constructor(sizes, dim), options.rows)
        times = in_turn({name: partial(seconds, task) for name, task in tasks.items()}, options.repeats)
        print(f"K = {dim}, {options.rows} rows, {options.fields} fields, {options.threads} threads")
        for name, measured in times.items():
            best, median = min(measured), statistics.median(measured)
            ratio = best / min(times["bare"])
            print(f"  {name:5} best {best * 1e3:7.2f} ms  median {median * 1e3:7.2f} ms  {ratio:5.2f} × bare")


if __name__ == "__main__":
    main()
