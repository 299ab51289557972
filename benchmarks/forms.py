"""Time the scores of the family, forward and backward, against the two bare matrix products of an FmFM.

    python benchmarks/forms.py [--rows 4096] [--fields 39] [--threads 2] [--repeats 15]

A score is what a training step does between gathering rows and updating them. All are timed in turn, many times over,
and the best and the median are shown; "bare" is V S and its gradient's product alone, as torch multiplies matrices.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from fm2.models import FM, FactorizationMachine, FmFM, FvFM, FwFM


def bare_products(rows: int, width: int) -> Callable[[], Tensor]:
    """Give one product of a batch with a D × D matrix, and one of a batch with another."""
    batch, matrix = torch.randn(rows, width), torch.randn(width, width)

    def run() -> Tensor:
        return batch.T @ (batch @ matrix)

    return run


def score(model: FactorizationMachine, rows: int) -> Callable[[], None]:
    """Give a forward and backward pass from gathered rows, as a trainer asks for it."""
    gathered = {name: torch.randn(rows, table.width, requires_grad=True) for name, table in model.tables.items()}
    slope = torch.randn(rows)

    def run() -> None:
        model.zero_grad()
        for tensor in gathered.values():
            tensor.grad = None
        model.score(**gathered).backward(slope)  # type: ignore[no-untyped-call]

    return run


def main() -> None:
    """Print a table of times."""
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
        times: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(options.repeats):
            for name, task in tasks.items():
                begin = time.perf_counter()
                task()
                times[name].append(time.perf_counter() - begin)
        print(f"K = {dim}, {options.rows} rows, {options.fields} fields, {options.threads} threads")
        for name, measured in times.items():
            best, median = min(measured), statistics.median(measured)
            share = best / min(times["bare"])
            print(f"  {name:5} best {best * 1e3:7.2f} ms  median {median * 1e3:7.2f} ms  {share:5.2f} × bare")


if __name__ == "__main__":
    main()
