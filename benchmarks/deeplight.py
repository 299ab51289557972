"""How much quicker DeepLight predicts for having pruned its weights, beside the same weights in dense products.

    python benchmarks/deeplight.py [--hidden 400,400,400] [--dim 16] [--rounds 15]

39 fields, weights drawn at random and pruned by size, as training prunes them; one thread. Both score the same gathered
embeddings, in turn, and the median of their ratios counts. `LightScoring` is what a trained model uses from a share of
zeros on, PAYS in its file.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from bars import Bar, print_bars
from fm2.models import build
from fm2.models.deep.deeplight import DeepLight
from fm2.models.deep.light_scoring import LightScoring
from fm2.models.deep.sparsity import smallest

FIELDS, BATCHES = 39, {1: 200, 256: 20, 4096: 2}  # rows, and how often a round scores them
SPARSITIES = (0.8, 0.9, 0.95, 0.98)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--hidden", default="400,400,400")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    hidden = [int(width) for width in settings.hidden.split(",")]
    print(
        f"{FIELDS} fields, K = {settings.dim}, hidden layers {hidden}; one thread, median of {settings.rounds} rounds"
    )
    bars = []
    for sparsity in SPARSITIES:
        model = make(hidden, settings.dim, sparsity)
        sparse = LightScoring(model)
        for rows, times in BATCHES.items():
            embedding = torch.randn(rows, FIELDS * settings.dim) * 0.05
            torch.testing.assert_close(sparse.score(embedding), model.score(embedding), rtol=1e-3, atol=1e-4)
            ratios = compare(model.score, sparse.score, embedding, times, settings.rounds)
            quicker = Bar(f"{sparsity:.0%} zeros, batches of {rows:,}", ratios, least=1.0 if sparsity >= 0.9 else None)
            bars.append(quicker)
    print_bars("dense time / sparse time", bars)


def make(hidden: list[int], dim: int, sparsity: float) -> DeepLight:
    """Build a DeepLight, and prune its layers and pairs."""
    model = build({"model": "deeplight", "field_sizes": [10] * FIELDS, "dims": dim, "hidden": hidden}, seed=0)
    assert isinstance(model, DeepLight)
    with torch.no_grad():
        for weight in model.prunable_weights():
            weight.masked_fill_(smallest(weight, sparsity), 0)
    return model.eval()


def compare(
    dense: Callable[[Tensor], Tensor], sparse: Callable[[Tensor], Tensor], embedding: Tensor, times: int, rounds: int
) -> float:
    """Score by both in turn; give the median of how many times as long the dense one takes."""
    with torch.no_grad():
        for score in (dense, sparse):
            score(embedding)
        ratios = [timed(dense, embedding, times) / timed(sparse, embedding, times) for _ in range(rounds)]
    return statistics.median(ratios)


def timed(score: Callable[[Tensor], Tensor], embedding: Tensor, times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        score(embedding)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
