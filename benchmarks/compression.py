"""What making a trained FmFM smaller costs in quality, and that compiling it exactly costs none.

    python benchmarks/compression.py criteo [--dim 16] [--seeds 3]       (FM2_DATA names the directory of criteo.tsv.gz)
    python benchmarks/compression.py generated [--dim 16] [--seeds 1] [--rows 5000000]

Trains an FmFM; shrinks it at 95 % of the variance, by both weightings, from scratch and warm; compiles the full model
by every plan and with every kind of number. Quality is that of the test rows. Differences from torch are the largest of
any probability. FLOPs are the paper's, of the cached form. On 5 M rows it takes an hour or two on 2 cores.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from bars import Bar, print_bars
from fm2 import complexity
from fm2.compression.dimensions import Weighting
from fm2.compression.weights import read_weights
from fm2.engine.compilation import compile
from fm2.training import metrics
from generated import working_directory
from quality import generated_data, real_data

VARIANCE, MOST_LOST = 0.95, 0.5  # thousandths of AUC
WEIGHTINGS: tuple[Weighting, ...] = ("counts", "features")
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", choices=("criteo", "generated"))
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--directory", type=Path, help="keep the data set here (default: nowhere)")
    settings = parser.parse_args()
    with working_directory(settings.directory) as directory, tempfile.TemporaryDirectory() as folder:
        if settings.data == "criteo":
            data = real_data(directory)["criteo"]
        else:
            data = generated_data(directory, settings.rows, 100_000)
        measure(fm2.Dataset.open(data), settings, Path(folder))


def measure(dataset: fm2.Dataset, settings: argparse.Namespace, folder: Path) -> None:
    """Train, compress and compile with every seed; print the means, and which bars are reached."""
    found: dict[str, list[Figures]] = defaultdict(list)
    for seed in range(settings.seeds):
        run = fm2.train("fmfm", dataset, folder / f"run-{seed}", dim=settings.dim, seed=seed)
        full = figures(run.probabilities(dataset.test.ids), dataset, run)
        found["full"].append(full)
        for weighting, warm in itertools.product(WEIGHTINGS, (False, True)):
            out = folder / f"{weighting}-{warm}-{seed}"
            small = fm2.shrink(run, dataset, out, variance=VARIANCE, weighting=weighting, warm=warm, seed=seed)
            name = f"shrink, {weighting}, {'warm' if warm else 'from scratch'}"
            found[name].append(figures(small.probabilities(dataset.test.ids), dataset, small))
        for name, options in plans(settings.dim * len(dataset.field_sizes), full["flops"]).items():
            found[name].append(compiled(run, dataset, folder / "model.fm2", options))
    print(f"{dataset!r}, K = {settings.dim}, mean of {settings.seeds} seeds\n")
    show(found)
    full_auc = mean(found["full"], "auc")
    lost = {name: 1e3 * (full_auc - mean(entries, "auc")) for name, entries in found.items()}
    bars = [
        Bar(name, value, most=MOST_LOST) for name, value in lost.items() if name.startswith(("shrink", "i8", "tenth"))
    ]
    print_bars("AUC lost, in thousandths", bars)


def plans(width: int, flops: float) -> dict[str, dict[str, Any]]:
    """Give the ways to compile: all exact plans, all numbers, and spectra of a tenth of the operations and less."""
    tenth = max(rank for rank in range(1, width) if complexity.spectral(39, rank) <= flops / 10)
    ranks = {f"spectral, rank {rank}": {"plan": "spectral", "rank": rank} for rank in (8, 16, 32, 64) if rank < tenth}
    return {
        "direct": {"plan": "direct"},
        "cached": {"plan": "cached"},
        "cached, 10 MB": {"plan": "cached", "memory": 1e7},
        f"spectral, rank {width} of {width}": {"plan": "spectral", "rank": width},
        "f16": {"dtype": "f16", "plan": "cached"},
        "i8": {"dtype": "i8", "plan": "cached"},
        **ranks,
        f"tenth: spectral, rank {tenth}": {"plan": "spectral", "rank": tenth},
    }


def compiled(run: Any, dataset: fm2.Dataset, path: Path, options: dict[str, Any]) -> Figures:
    """Compile a run, and compare the model with torch's on the test rows."""
    compile(run.path, path, data=dataset if options["plan"] == "spectral" else None, **options)
    probabilities = fm2.load(path).predict(dataset.test.ids)
    exact = run.probabilities(dataset.test.ids)
    logit_error = np.abs(np.log(exact / (1 - exact)) - np.log(probabilities / (1 - probabilities)))
    rank = options.get("rank")
    return {
        **figures(probabilities, dataset, run),
        **({"flops": complexity.spectral(len(dataset.field_sizes), rank)} if rank else {}),
        "probability": float(np.abs(probabilities - exact).max()),
        "logit": float(logit_error.max()),
    }


def figures(probabilities: Any, dataset: fm2.Dataset, run: Any) -> Figures:
    dims = read_weights(run.path).dims
    measured = metrics.evaluate(dataset.test.labels, probabilities)
    return {**measured, "dimension": sum(dims) / len(dims), "flops": complexity.fmfm(dims, cached=True)}


def mean(entries: list[Figures], name: str) -> float:
    return float(np.mean([entry[name] for entry in entries]))


def show(found: dict[str, list[Figures]]) -> None:
    """Print a line for every model."""
    print(f"{'':32}{'dimension':>10}{'FLOPs':>9}{'AUC':>9}{'log loss':>10}{'worst p':>10}{'worst logit':>12}")
    for name, entries in found.items():
        quality = f"{mean(entries, 'auc'):>9.5f}{mean(entries, 'log_loss'):>10.5f}"
        size = f"{mean(entries, 'dimension'):>10.2f}{mean(entries, 'flops'):>9,.0f}"
        apart = [entry for entry in entries if "logit" in entry]
        worst = f"{max(e['probability'] for e in apart):>10.1e}{max(e['logit'] for e in apart):>12.1e}" if apart else ""
        print(f"{name:32}{size}{quality}{worst}")


if __name__ == "__main__":
    main()
