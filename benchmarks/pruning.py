"""Compare soft pruning (fewer dimensions) with hard pruning (fewer field pairs): section 4.4 of the paper.

    python benchmarks/pruning.py [--seeds 3] [--dim 8] [--directory DIRECTORY]

FM2_DATA names the directory of criteo.tsv.gz and avazu.csv.gz. In one run: train an FmFM on Criteo with default
settings; shrink it (``--warm``), prune it, and prune a shrunk one; compile every model with the plan that is fastest on
this machine. Metrics are means over seeds on test rows. Times are those of the first seed's models on one thread, in
turn; the best round counts, and for single rows its median. Takes a few minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from datasets import real_data, working_directory
from fm2.compression.retraining import measure
from fm2.engine.scorer import load
from score import batch, one_row
from timing import in_turn

VARIANCES, KEEPS = (0.99, 0.95, 0.9, 0.8), (0.5, 0.3, 0.1)
SHRUNK = "shrink 0.95"  # also pruned
ROUNDS, ROWS = 100, 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep datasets and models here (default: do not keep them)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dim", type=int, default=8, help="dimension of the full model")
    settings = parser.parse_args()
    with working_directory(settings.directory) as directory:
        dataset = fm2.Dataset.open(real_data(directory)["criteo"])
        runs = [train_all(dataset, directory / f"seed{seed}", settings.dim, seed) for seed in range(settings.seeds)]
        print_results(dataset, runs, directory)


def train_all(dataset: fm2.Dataset, folder: Path, dim: int, seed: int) -> dict[str, fm2.Run]:
    """Train a model and all smaller ones, except those in the folder already."""
    runs: dict[str, fm2.Run] = {}

    def make(name: str, how: Callable[..., fm2.Run], start: fm2.Run | str, **options: Any) -> fm2.Run:
        path = folder / name.replace(" ", "-")
        runs[name] = fm2.Run.open(path) if path.exists() else how(start, dataset, path, **options)
        print(f"seed {seed}: {name}", flush=True)
        return runs[name]

    first = make("full model", fm2.train, "fmfm", dim=dim, seed=seed)
    for variance in VARIANCES:
        make(f"shrink {variance}", fm2.shrink, first, variance=variance, warm=True)
    for keep in KEEPS:
        make(f"prune {keep}", fm2.prune, first, keep=keep)
    for keep in KEEPS:
        make(f"{SHRUNK}, prune {keep}", fm2.prune, runs[SHRUNK], keep=keep)
    return runs


def print_results(dataset: fm2.Dataset, runs: list[dict[str, fm2.Run]], directory: Path) -> None:
    """Print the size, metrics and scoring times of every model."""
    times = time_all(dataset, runs[0], directory)
    print(f"\n{'':24}{'dimension':>10}{'FLOPs':>9}{'AUC':>9}{'log loss':>10}{'one row':>10}{'batch row':>12}{'MB':>6}")
    for name, (single, batched, size) in times.items():
        measured: list[dict[str, Any]] = [measure(seed_runs[name], dataset) for seed_runs in runs]
        dimension, flops, auc, loss = (
            np.mean([entry[key] for entry in measured]) for key in ("dimension", "flops", "auc", "log_loss")
        )
        quality = f"{dimension:>10.2f}{flops:>9,.0f}{auc:>9.5f}{loss:>10.5f}"
        print(f"{name:<24}{quality}{single * 1e6:>7.2f} µs{batched * 1e6:>9.2f} µs{size / 1e6:>6.1f}", flush=True)


def time_all(dataset: fm2.Dataset, runs: dict[str, fm2.Run], directory: Path) -> dict[str, tuple[float, float, int]]:
    """Compile all models; return the seconds of a single row and of a row in a batch, and the bytes."""
    ids = np.ascontiguousarray(dataset.test.ids[:ROWS])
    measurements: dict[tuple[str, str], Callable[[], float]] = {}
    sizes = {}
    for name, run in runs.items():
        compiled = fm2.compile(run.path, directory / f"{run.path.name}.fm2")
        model = load(compiled.path, threads=1)
        measurements[name, "single"], measurements[name, "batch"] = one_row(model, ids), batch(model, ids)
        sizes[name] = compiled.bytes
        print(f"{name}: {compiled.plan}", flush=True)
    best = {key: min(times) for key, times in in_turn(measurements, ROUNDS).items()}
    return {name: (best[name, "single"], best[name, "batch"], size) for name, size in sizes.items()}


if __name__ == "__main__":
    main()
