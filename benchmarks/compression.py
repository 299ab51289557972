"""Compare the quality of smaller FmFMs with the full model, and compiled models with torch.

    python benchmarks/compression.py criteo [--dim 16] [--seeds 3]       (FM2_DATA: the directory of criteo.tsv.gz)
    python benchmarks/compression.py generated [--dim 16] [--seeds 1] [--rows 5000000]

In one run: train an FmFM; shrink it to 95% of the variance with every weighting, from scratch and from a warm start;
compile the full model with every plan and number format. Metrics are on test rows. FLOPs, with cached vectors, are
shares of the full model's. Differences from torch are maxima over all probabilities. 5 M rows take one to two hours on
2 cores.
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
from datasets import named_data, working_directory
from fm2.compression.dimensions import Weighting
from fm2.compression.weights import read_weights
from fm2.engine.compile import compile
from fm2.evaluation import metrics
from fm2.models import complexity
from targets import Target, print_targets

VARIANCE = 0.95
MOST_AUC_LOST = 0.5  # thousandths
MOST_FLOPS = 40  # percent of the full model
MOST_DIFFERENCE = 1.0  # of a probability, in 1e-5
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
    parser.add_argument("--directory", type=Path, help="keep the dataset here (default: do not keep it)")
    settings = parser.parse_args()
    with working_directory(settings.directory) as directory, tempfile.TemporaryDirectory() as folder:
        data = named_data(settings.data, directory, settings.rows, features=100_000)
        measure(fm2.Dataset.open(data), settings, Path(folder))


def measure(dataset: fm2.Dataset, settings: argparse.Namespace, folder: Path) -> None:
    """Train, shrink and compile with every seed; print the means and the targets."""
    results: dict[str, list[Figures]] = defaultdict(list)
    for seed in range(settings.seeds):
        run = fm2.train("fmfm", dataset, folder / f"run-{seed}", dim=settings.dim, seed=seed)
        logits = run.logits(dataset.test.ids)
        full = figures(logits, dataset, run)
        results["full"].append(full)
        for weighting, warm in itertools.product(WEIGHTINGS, (False, True)):
            out = folder / f"{weighting}-{warm}-{seed}"
            small = fm2.shrink(run, dataset, out, variance=VARIANCE, weighting=weighting, warm=warm, seed=seed)
            name = f"shrink, {weighting}, {'warm' if warm else 'from scratch'}"
            results[name].append(figures(small.logits(dataset.test.ids), dataset, small))
        for name, options in plans(len(dataset.field_sizes), settings.dim, full["flops"]).items():
            results[name].append(compiled(run, logits, dataset, folder / "model.fm2", options))
    print(f"{dataset!r}, K = {settings.dim}, mean of {settings.seeds} seeds\n")
    print_results(results)
    print_all_targets(results)


def print_all_targets(results: dict[str, list[Figures]]) -> None:
    """Print the targets for quality, FLOPs and exactness."""
    auc, flops = mean(results["full"], "auc"), mean(results["full"], "flops")
    lost = {name: 1e3 * (auc - mean(entries, "auc")) for name, entries in results.items()}
    share = {name: 100 * mean(entries, "flops") / flops for name, entries in results.items()}
    difference = {name: 1e5 * worst(results[name], "probability") for name in results if name.startswith(EXACT)}
    for title, ratios, names, most in (
        ("AUC lost, thousandths", lost, ("shrink", "i8", "tenth"), MOST_AUC_LOST),
        ("FLOPs, % of the full model", share, "shrink", MOST_FLOPS),
        ("largest difference of a probability, 1e-5", difference, EXACT, MOST_DIFFERENCE),
    ):
        selected = {name: ratio for name, ratio in ratios.items() if name.startswith(names)}
        print_targets(title, [Target(name, ratio, at_most=most) for name, ratio in selected.items()])


def plans(fields: int, dim: int, flops: float) -> dict[str, dict[str, Any]]:
    """Return the options of compile: exact plans, number formats, and spectra with at most a tenth of the FLOPs."""
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
    """Compile a run, and compare its logits on the test rows with torch's."""
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


def print_results(results: dict[str, list[Figures]]) -> None:
    """Print a line for every model."""
    print(f"{'':32}{'dimension':>10}{'FLOPs':>9}{'AUC':>9}{'log loss':>10}{'worst p':>10}{'worst logit':>12}")
    for name, entries in results.items():
        quality = f"{mean(entries, 'auc'):>9.5f}{mean(entries, 'log_loss'):>10.5f}"
        size = f"{mean(entries, 'dimension'):>10.2f}{mean(entries, 'flops'):>9,.0f}"
        compared = [entry for entry in entries if "logit" in entry]
        errors = f"{worst(compared, 'probability'):>10.1e}{worst(compared, 'logit'):>12.1e}" if compared else ""
        print(f"{name:32}{size}{quality}{errors}")


if __name__ == "__main__":
    main()
