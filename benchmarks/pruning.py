"""Soft pruning beside hard: fewer dimensions of fields against fewer pairs of fields (section 4.4 of the paper).

    python benchmarks/pruning.py [--seeds 3] [--dim 8] [--directory DIRECTORY]

It needs the directory with criteo.tsv.gz and avazu.csv.gz in the variable FM2_DATA. An FmFM is trained on Criteo's rows
with default settings, shrunk (``--warm``), pruned, and shrunk and then pruned; every model is compiled by the plan that
is quickest here. Quality is the mean over seeds, on test. Times are those of the first seed's models, on one thread,
all in turn, several rounds, and the best round counts; of single rows its median. It takes some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from fm2.compression.retraining import measure
from fm2.engine.scorer import load
from generated import working_directory
from quality import real_data
from score import batch, one_row

VARIANCES, KEEPS = (0.99, 0.95, 0.9, 0.8), (0.5, 0.3, 0.1)
SHRUNK = "shrink 0.95"  # which is pruned as well
ROUNDS, ROWS = 100, 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep data sets and models here (default: nowhere)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dim", type=int, default=8, help="of the model that is made smaller")
    settings = parser.parse_args()
    with working_directory(settings.directory) as directory:
        dataset = fm2.Dataset.open(real_data(directory)["criteo"])
        runs = [train_all(dataset, directory / f"seed{seed}", settings.dim, seed) for seed in range(settings.seeds)]
        show(dataset, runs, directory)


def train_all(dataset: fm2.Dataset, folder: Path, dim: int, seed: int) -> dict[str, fm2.Run]:
    """Train a model and all that are made of it, but for those that are there."""
    runs: dict[str, fm2.Run] = {}

    def make(name: str, how: Callable[..., fm2.Run], start: fm2.Run | str, **options: Any) -> fm2.Run:
        path = folder / name.replace(" ", "-")
        runs[name] = fm2.Run.open(path) if path.exists() else how(start, dataset, path, **options)
        print(f"seed {seed}: {name}", flush=True)
        return runs[name]

    first = make("the first model", fm2.train, "fmfm", dim=dim, seed=seed)
    for variance in VARIANCES:
        make(f"shrink {variance}", fm2.shrink, first, variance=variance, warm=True)
    for keep in KEEPS:
        make(f"prune {keep}", fm2.prune, first, keep=keep)
    for keep in KEEPS:
        make(f"{SHRUNK}, prune {keep}", fm2.prune, runs[SHRUNK], keep=keep)
    return runs


def show(dataset: fm2.Dataset, runs: list[dict[str, fm2.Run]], directory: Path) -> None:
    """Print a line for each way to make a model smaller: its size, its quality, and its times once it is compiled."""
    times = time_all(dataset, runs[0], directory)
    print(f"\n{'':24}{'dimension':>10}{'FLOPs':>9}{'AUC':>9}{'log loss':>10}{'one row':>10}{'of a batch':>12}{'MB':>6}")
    for name, (single, batched, size) in times.items():
        found: list[dict[str, Any]] = [measure(some[name], dataset) for some in runs]
        dimension, flops, auc, loss = (
            np.mean([one[key] for one in found]) for key in ("dimension", "flops", "auc", "log_loss")
        )
        quality = f"{dimension:>10.2f}{flops:>9,.0f}{auc:>9.5f}{loss:>10.5f}"
        print(f"{name:<24}{quality}{single * 1e6:>7.2f} µs{batched * 1e6:>9.2f} µs{size / 1e6:>6.1f}", flush=True)


def time_all(dataset: fm2.Dataset, runs: dict[str, fm2.Run], directory: Path) -> dict[str, tuple[float, float, int]]:
    """Compile all models; give the seconds of a row on its own and of one of a batch, and the bytes."""
    ids = np.ascontiguousarray(dataset.test.ids[:ROWS])
    tasks, sizes = {}, {}
    for name, run in runs.items():
        compiled = fm2.compile(run.path, directory / f"{run.path.name}.fm2")
        model = load(compiled.path, threads=1)
        tasks[name], sizes[name] = (one_row(model, ids), batch(model, ids)), compiled.bytes
        print(f"{name}: {compiled.plan}", flush=True)
    rounds = [[[task() for task in pair] for pair in tasks.values()] for _ in range(ROUNDS)]
    best = np.min(rounds, axis=0)
    return {name: (single, batched, sizes[name]) for name, (single, batched) in zip(tasks, best, strict=True)}


if __name__ == "__main__":
    main()
