"""``fm2 inspect``: the parameters, bytes, operations and dimensions of a trained or compiled model."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

from fm2.artifacts.model_file import MODEL, open_model
from fm2.engine.scorer import load
from fm2.models import complexity
from fm2.models.networks import NETWORKS


def inspect(path: str | Path) -> dict[str, Any]:
    """Return the properties of a run or a compiled model as plain values."""
    path = Path(path)
    compiled = {}
    counts = {}
    if path.is_file():
        scorer = load(path)
        file = path
        config, schema = scorer.meta["model"], scorer.schema
        compiled = {"plan": scorer.meta["plan"], "dtype": scorer.dtype, "measured": scorer.meta["measured"]}
    else:
        file = path / MODEL
        with open_model(path) as opened:
            config, schema, counts = opened.config, opened.schema, opened.counts
    sizes, dims, network = config["field_sizes"], dimensions(config), config["model"] in NETWORKS
    return {
        "path": str(path),
        "model": config["model"],
        "features": sum(sizes),
        "parameters": counts["parameters"] if network else parameters(config),
        "bytes": file.stat().st_size,
        "flops": {"network": counts["flops"]} if network else operations(config, compiled.get("plan", "")),
        **compiled,
        "fields": [
            {"name": name, "features": size, "dimension": dim}
            for name, size, dim in zip(schema.names, sizes, dims, strict=True)
        ],
    }


def dimensions(config: dict[str, Any]) -> list[int]:
    """Give each field's dimension; 0 where a model has no embeddings.

    >>> dimensions({"model": "ffm", "field_sizes": [5, 6], "dim": 4})
    [4, 4]
    """
    fields = len(config["field_sizes"])
    return list(config["dims"]) if "dims" in config else [int(config.get("dim", 0))] * fields


def parameters(config: dict[str, Any]) -> int:
    """Count a model's parameters, without the bias and those of pruned pairs.

    >>> parameters({"model": "fmfm", "field_sizes": [5, 6], "dims": [2, 3], "linear": "features"})
    45
    """
    sizes: list[int] = config["field_sizes"]
    dims, name, features = dimensions(config), config["model"], sum(sizes)
    pruned = {(i, j) for i, j in config.get("pruned", [])}
    pairs = [(dims[i], dims[j]) for i, j in combinations(range(len(sizes)), 2) if (i, j) not in pruned]
    if name in ("lr", "poly2"):
        return features + (2 ** int(config["hash_bits"]) if name == "poly2" else 0)
    if name == "ffm":
        return features * (1 + (len(sizes) - 1) * dims[0])
    embeddings = sum(size * dim for size, dim in zip(sizes, dims, strict=True))
    linear = (features if config["linear"] != "fields" else 0) + (sum(dims) if config["linear"] != "features" else 0)
    of_pair: dict[str, Callable[[int, int], int]] = {
        "fm": lambda a, b: 0,
        "fwfm": lambda a, b: 1,
        "fvfm": lambda a, b: a,
        "fmfm": lambda a, b: a * b,
    }
    return embeddings + linear + sum(of_pair[name](*pair) for pair in pairs)


def operations(config: dict[str, Any], plan: str = "") -> dict[str, int]:
    """Count floating point operations per prediction by the paper's counting: as it was trained, and by the plan.

    >>> operations({"model": "fmfm", "field_sizes": [9] * 39, "dims": [16] * 39})
    {'direct': 403923, 'cached': 24531}
    """
    n, dims = len(config["field_sizes"]), dimensions(config)
    pruned = [(i, j) for i, j in config.get("pruned", [])]
    cached = complexity.ffm(n, dims[0]) - len(pruned) * (2 * dims[0] + 1)  # an inner product for each pair that is left
    counts: dict[str, Callable[[], dict[str, int]]] = {
        "lr": lambda: {"sums": complexity.lr(n)},
        "poly2": lambda: {"sums": complexity.poly2(n)},
        "fm": lambda: {"sums": complexity.fm(n, dims[0])},
        "ffm": lambda: {"pairs": complexity.ffm(n, dims[0])},
        "fwfm": lambda: {"direct": complexity.fwfm(n, dims[0], len(pruned)), "cached": cached},
        "fvfm": lambda: {"direct": complexity.fvfm(n, dims[0], len(pruned)), "cached": cached},
        "fmfm": lambda: {name: complexity.fmfm(dims, name == "cached", pruned) for name in ("direct", "cached")},
    }
    found = counts[config["model"]]()
    cut = re.fullmatch(r"spectral, rank (\d+)", plan)
    rank = int(cut[1]) if cut else len(config.get("signs") or [])
    return found | ({"spectral": complexity.spectral(n, rank)} if rank else {})


def print_inspection(properties: dict[str, Any]) -> None:
    """Print the result of :func:`inspect`."""
    fields = properties["fields"]
    print(
        f"{properties['path']}: {properties['model']}, {properties['features']:,} features, "
        f"{properties['parameters']:,} parameters"
    )
    plan = f", plan: {properties['plan']}, numbers: {properties['dtype']}" if "plan" in properties else ""
    print(f"{properties['bytes'] / 1e6:,.1f} MB{plan}")
    counts = ", ".join(f"{name} {count:,}" for name, count in properties["flops"].items())
    print(f"operations per prediction, counted as in the paper: {counts}")
    width = max(len(field["name"]) for field in fields)
    print(f"\n{'field':<{width}}{'features':>14}{'dimension':>12}")
    for field in fields:
        print(f"{field['name']:<{width}}{field['features']:>14,}{field['dimension']:>12}")
    average = sum(field["dimension"] for field in fields) / len(fields)
    print(f"{'average':<{width}}{'':>14}{average:>12.2f}")
