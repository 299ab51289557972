"""Compare DeepLight's sparse scoring with dense scoring of the same pruned weights.

    python benchmarks/deeplight.py [--hidden 400,400,400] [--dim 16] [--rounds 15]

39 fields, random weights pruned by magnitude as in training, one thread. Both score the same gathered embeddings in
turn; the result is the median of the ratios dense time / sparse time. A trained model uses `LightScoring` above a share
of zeros, PAYS in its module.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from fm2.models import build
from fm2.models.deep.deeplight import DeepLight, LightScoring, smallest
from targets import Target, print_targets
from timing import seconds

FIELDS, BATCHES = 39, {1: 200, 256: 20, 4096: 2}  # rows: calls per round
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
    targets = []
    for sparsity in SPARSITIES:
        model = make(hidden, settings.dim, sparsity)
        sparse = LightScoring(model)
        for rows, calls in BATCHES.items():
            embedding = torch.randn(rows, FIELDS * settings.dim) * 0.05
            torch.testing.assert_close(sparse.score(embedding), model.score(embedding), rtol=1e-3, atol=1e-4)
            ratio = compare(model.score, sparse.score, embedding, calls, settings.rounds)
            title, required = f"{sparsity:.0%} zeros, batches of {rows:,}", 1.0 if sparsity >= 0.9 else None
            targets.append(Target(title, ratio, at_least=required))
    print_targets("dense time / sparse time", targets)


def make(hidden: list[int], dim: int, sparsity: float) -> DeepLight:
    """Build a DeepLight and prune its layers and pairs."""
    model = build({"model": "deeplight", "field_sizes": [10] * FIELDS, "dims": dim, "hidden": hidden}, seed=0)
    assert isinstance(model, DeepLight)
    with torch.no_grad():
        for weight in model.prunable_weights():
            weight.masked_fill_(smallest(weight, sparsity), 0)
    return model.eval()


def compare(
    dense: Callable[[Tensor], Tensor], sparse: Callable[[Tensor], Tensor], embedding: Tensor, calls: int, rounds: int
) -> float:
    """Score with both in turn; return the median of dense time / sparse time."""
    with torch.no_grad():
        for score in (dense, sparse):
            score(embedding)
        ratios = [
            seconds(lambda: dense(embedding), calls) / seconds(lambda: sparse(embedding), calls) for _ in range(rounds)
        ]
    return statistics.median(ratios)


if __name__ == "__main__":
    main()
