"""Ranking with fields too large for tables of products: every kernel, at every level, against float64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fm2
from fm2 import Field, Schema
from fm2.compression.weights import Weights
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import write
from fm2.engine.matrix_plans import field_orders, matrix_plan
from fm2.engine.model_file import align
from fm2.engine.plans import LANES
from fm2.engine.scorer import load

SIZES = [70_000, 30, 40_000, 70_000, 5, 13]
DIMS = {"fmfm": [3, 9, 7, 17, 1, 5], "fvfm": [6] * 6}
CONTEXT, CANDIDATE = [1, 3], [0, 2, 4, 5]
TOLERANCE = {"f32": 1e-5, "f16": 0.02, "i8": 0.2}  # relative to the standard deviation of the pair terms


def make_weights(name: str) -> Weights:
    """Make a model whose pair terms matter more than its linear part."""
    random, dims = np.random.default_rng(0), DIMS[name]

    def draw(*shape: int) -> np.ndarray:
        return random.normal(0, 0.5, shape).astype(np.float32)

    return Weights(
        name=name,
        config={"model": name, "field_sizes": SIZES, "dims": dims, "linear": "features"},
        schema=Schema([Field(f"c{field}", min_count=1) for field in range(len(SIZES))], label="click"),
        vocabularies=[Vocabulary.of([f"v{value}" for value in range(size - 1)], [1] * (size - 1)) for size in SIZES],
        metrics={},
        bias=-0.5,
        linear=[draw(size) / 5 for size in SIZES],
        embeddings=[draw(size, dim) for size, dim in zip(SIZES, dims, strict=True)],
        blocks={
            (i, j): draw(dims[i], dims[j]) if name == "fmfm" else draw(dims[i])
            for i, j in itertools.combinations(range(len(SIZES)), 2)
        },
    )


def literal(weights: Weights, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits and their pair terms in float64."""
    rows = [table[ids[:, field]].astype(np.float64) for field, table in enumerate(weights.embeddings)]
    linear = sum(table[ids[:, field]].astype(np.float64) for field, table in enumerate(weights.linear))
    pairs = np.zeros(len(ids))
    for (i, j), block in weights.blocks.items():
        matrix = block if block.ndim == 2 else np.diag(block)
        pairs += np.einsum("ri,ij,rj->r", rows[i], matrix.astype(np.float64), rows[j])
    return weights.bias + linear + pairs, pairs


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", DIMS)
def test_every_kernel_ranks_like_the_equation(tmp_path, name, dtype):
    weights = make_weights(name)
    order = field_orders(weights)["by size"]
    plan = matrix_plan(weights, order, [weights.sizes[field] // 2 for field in order], dtype, "half of it")
    scorer = load(write(weights, [plan], tmp_path / "model.fm2").path)
    ranking = scorer.ranker(context=[f"c{field}" for field in CONTEXT])._native
    ids = np.random.default_rng(1).integers(0, SIZES, (301, len(SIZES))).astype(np.int32)
    ids[:, CONTEXT] = ids[0, CONTEXT]
    expected, pairs = literal(weights, ids)
    context, candidates = (np.ascontiguousarray(part) for part in (ids[0, CONTEXT], ids[:, CANDIDATE]))
    for level in fm2.cpu_info()["levels"]:
        catalog = np.empty((len(ids), align(ranking.width + 1, LANES)), np.float32)
        ranking.describe(candidates, catalog, 2, level)
        for indices, probabilities in (
            ranking.rank(context, candidates, len(ids), 2, level),
            ranking.top(context, catalog, len(ids), 2, level),
        ):
            p = probabilities.astype(np.float64)
            logits = np.log(p) - np.log1p(-p)
            close = np.abs(expected[indices]) < 8  # where a float32 probability determines the logit
            difference = np.abs(logits - expected[indices])[close]
            assert difference.max() < TOLERANCE[dtype] * pairs.std() + 2e-4
            assert close.sum() > 200
