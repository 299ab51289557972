"""What making a trained FmFM smaller costs in quality, and that compiling it exactly costs none.

    python benchmarks/compression.py criteo [--dim 16] [--seeds 3]       (FM2_DATA names the directory of criteo.tsv.gz)
    python benchmarks/compression.py generated [--dim 16] [--seeds 1] [--rows 5000000]

Trains an FmFM; shrinks it at 95 % of the variance, by every weighting, from scratch and warm; compiles the full model
by every plan and with every kind of number. Quality is that of the test rows. Differences from torch are the largest of
any probability. FLOPs are the paper's, of the cached form. On 5 M rows it takes an hour or two on 2 cores.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

import fm2
from bars import Bar, print_bars
from fm2.compression.dimensions import Weighting
from fm2.compression.weights import read_weights
from fm2.engine.compile import compile
from fm2.evaluation import metrics
from fm2.models import complexity
from generated import working_directory
from quality import generated_data, real_data

VARIANCE, MOST_LOST = 0.95, 0.5  # thousandths of AUC
MOST_FLOPS = 40  # percent of the full model's
MOST_APART = 1.0  # hundred-thousandths of a probability
EXACT = ("direct", "cached", "full rank")
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)
Figures = dict[str, float]
Logits = NDArray[np.float32]


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
        logits = run.logits(dataset.test.ids)
        full = figures(logits, dataset, run)
        found["full"].append(full)
        for weighting, warm in itertools.product(WEIGHTINGS, (False, True)):
            out = folder / f"{weighting}-{warm}-{seed}"
            small = fm2.shrink(run, dataset, out, variance=VARIANCE, weighting=weighting, warm=warm, seed=seed)
            name = f"shrink, {weighting}, {'warm' if warm else 'from scratch'}"
            found[name].append(figures(small.logits(dataset.test.ids), dataset, small))
        for name, options in plans(len(dataset.field_sizes), settings.dim, full["flops"]).items():
            found[name].append(compiled(run, logits, dataset, folder / "model.fm2", options))
    print(f"{dataset!r}, K = {settings.dim}, mean of {settings.seeds} seeds\n")
    show(found)
    show_bars(found)


def show_bars(found: dict[str, list[Figures]]) -> None:
    """Print which bars are reached: of quality, of operations, of exactness."""
    auc, flops = mean(found["full"], "auc"), mean(found["full"], "flops")
    lost = {name: 1e3 * (auc - mean(entries, "auc")) for name, entries in found.items()}
    share = {name: 100 * mean(entries, "flops") / flops for name, entries in found.items()}
    apart = {name: 1e5 * worst(found[name], "probability") for name in found if name.startswith(EXACT)}
    for title, ratios, names, most in (
        ("AUC lost, in thousandths", lost, ("shrink", "i8", "tenth"), MOST_LOST),
        ("FLOPs, percent of the full model's", share, "shrink", MOST_FLOPS),
        ("largest difference of a probability, × 1e-5", apart, EXACT, MOST_APART),
    ):
        print_bars(title, [Bar(name, ratio, most=most) for name, ratio in ratios.items() if name.startswith(names)])


def plans(fields: int, dim: int, flops: float) -> dict[str, dict[str, Any]]:
    """Give the ways to compile: all exact plans, all numbers, and spectra of a tenth of the operations and less."""
    width = fields * dim
    tenth = max(rank for rank in range(1, width) if complexity.spectral(fields, rank) <= flops / 10)
    ranks = {f"spectral, rank {rank}": {"plan": "spectral", "rank": rank} for rank in (8, 16, 32, 64) if rank < tenth}
    return {
        "direct": {"plan": "direct"},
        "cached": {"plan": "cached"},
        "cached, 10 MB": {"plan": "cached", "memory": 1e7},
        f"full rank: spectral, rank {width}": {"plan": "spectral", "rank": width},
        "f16": {"dtype": "f16", "plan": "cached"},
        "i8": {"dtype": "i8", "plan": "cached"},
        **ranks,
        f"tenth: spectral, rank {tenth}": {"plan": "spectral", "rank": tenth},
    }


def compiled(run: Any, exact: Logits, dataset: fm2.Dataset, path: Path, options: dict[str, Any]) -> Figures:
    """Compile a run, and compare the model with torch's logits on the test rows."""
    compile(run.path, path, data=dataset if options["plan"] == "spectral" else None, **options)
    logits = fm2.load(path).logits(dataset.test.ids)
    rank = options.get("rank")
    return {
        **figures(logits, dataset, run),
        **({"flops": complexity.spectral(len(dataset.field_sizes), rank)} if rank else {}),
        "probability": float(np.abs(metrics.sigmoid(logits) - metrics.sigmoid(exact)).max()),
        "logit": float(np.abs(np.float64(logits) - exact).max()),
    }


def figures(logits: Logits, dataset: fm2.Dataset, run: Any) -> Figures:
    dims = read_weights(run.path).dims
    measured = metrics.evaluate(dataset.test.labels, metrics.sigmoid(logits))
    return {**measured, "dimension": sum(dims) / len(dims), "flops": complexity.fmfm(dims, cached=True)}


def mean(entries: list[Figures], name: str) -> float:
    return float(np.mean([entry[name] for entry in entries]))


def worst(entries: list[Figures], name: str) -> float:
    return max(entry[name] for entry in entries)


def show(found: dict[str, list[Figures]]) -> None:
    """Print a line for every model."""
    print(f"{'':32}{'dimension':>10}{'FLOPs':>9}{'AUC':>9}{'log loss':>10}{'worst p':>10}{'worst logit':>12}")
    for name, entries in found.items():
        quality = f"{mean(entries, 'auc'):>9.5f}{mean(entries, 'log_loss'):>10.5f}"
        size = f"{mean(entries, 'dimension'):>10.2f}{mean(entries, 'flops'):>9,.0f}"
        apart = [entry for entry in entries if "logit" in entry]
        errors = f"{worst(apart, 'probability'):>10.1e}{worst(apart, 'logit'):>12.1e}" if apart else ""
        print(f"{name:32}{size}{quality}{errors}")


if __name__ == "__main__":
    main()
