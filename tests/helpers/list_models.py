"""Models with multi-valued fields and random weights, and their logits written out in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.lists import Values, values_of
from tests.helpers.literal import pair_hash

from fm2.compression.weights import Weights
from fm2.data.rows import EncodedRows
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import exact_plans, spectral_plan, write
from fm2.engine.scorer import Scorer, load
from fm2.schema import Field, Schema

HASH_BITS = 9


def make_weights(
    name: str, dims: Sequence[int], sizes: Sequence[int], lists: Sequence[int], seed: int = 0, **settings: Any
) -> Weights:
    """Return random weights of a model whose fields ``lists`` are multi-valued."""
    random = np.random.default_rng(seed)
    n = len(sizes)

    def normal(*shape: int) -> Any:
        return random.normal(scale=0.4, size=shape).astype(np.float32)

    fields = [Field(f"f{i}", multivalued=i in lists, min_count=1, **(settings if i in lists else {})) for i in range(n)]
    vocabularies = [Vocabulary.of([f"v{k}" for k in range(size - 2)] + [""], [size] * (size - 1)) for size in sizes]
    config: dict[str, Any] = {"model": name, "field_sizes": list(sizes)}
    blocks: dict[tuple[int, int], Any] = {}
    widths = [0] * n
    if name == "ffm":
        config["dim"], widths = dims[0], [dims[0] * (n - 1)] * n
    elif name in ("fm", "fwfm", "fvfm", "fmfm"):
        config |= {"dims": list(dims), "linear": "features"}
        widths = list(dims)
    if name == "poly2":
        config["hash_bits"] = HASH_BITS
    for i, j in combinations(range(n), 2):
        if name == "fwfm":
            blocks[i, j] = np.broadcast_to(normal(1), dims[0])
        elif name in ("fvfm", "fmfm"):
            blocks[i, j] = normal(dims[i]) if name == "fvfm" else normal(dims[i], dims[j])
    return Weights(
        name,
        config,
        Schema(fields, label="click"),
        vocabularies,
        {},
        0.25,
        [normal(size) for size in sizes],
        [normal(size, width) for size, width in zip(sizes, widths, strict=True)],
        blocks,
        normal(1 << HASH_BITS) if name == "poly2" else None,
    )


def compiled(weights: Weights, folder: Path, plan: Any, dtype: Any = "f32", memory: float = 4e9) -> Scorer:
    """Compile weights by a plan; ``spectral`` has full rank, so it is exact."""
    rank = sum(weights.dims)
    plans = [spectral_plan(weights, rank, dtype)] if plan == "spectral" else exact_plans(weights, plan, dtype, memory)
    return load(write(weights, list(plans)[-1:], folder / "model.fm2").path)


def literal_logits(weights: Weights, rows: EncodedRows) -> Any:
    """Return the logits of rows: sums over all values, and over all pairs of values of different fields."""
    fields = range(len(weights.sizes))
    by_row = zip(*(values_of(rows, field) for field in fields), strict=True)
    return np.array([_logit(weights, row) for row in by_row])


def _logit(weights: Weights, row: Sequence[Values]) -> float:
    total = float(weights.bias)
    for field, values in enumerate(row):
        total += sum(weight * float(weights.linear[field][id]) for id, weight in values)
    for i, j in combinations(range(len(row)), 2):
        total += sum(term for _, _, term in pair_terms(weights, row, i, j))
    return total


def pair_terms(weights: Weights, row: Sequence[Values], i: int, j: int) -> Iterator[tuple[int, int, float]]:
    """Yield, for each pair of values of two fields i < j, their places in their lists and their term."""
    for p, (a, a_weight) in enumerate(row[i]):
        for q, (b, b_weight) in enumerate(row[j]):
            yield p, q, a_weight * b_weight * _pair(weights, (i, a), (j, b))


def _pair(weights: Weights, first: tuple[int, int], second: tuple[int, int]) -> float:
    (i, _), (j, _) = first, second
    if weights.name == "lr":
        return 0.0
    if weights.pairs is not None:
        return float(weights.pairs[pair_hash(first, second, HASH_BITS)])
    u, v = (weights.embeddings[field][id].astype(np.float64) for field, id in (first, second))
    if weights.name == "ffm":
        dim = weights.config["dim"]
        return float(u[(j - 1) * dim : j * dim] @ v[i * dim : (i + 1) * dim])
    block = np.ones(len(u)) if weights.name == "fm" else weights.blocks[i, j].astype(np.float64)
    return float(u @ (np.diag(block) if block.ndim == 1 else block) @ v)
