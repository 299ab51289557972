"""What a trained or compiled model is made of: parameters, bytes, operations, dimensions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fm2.artifacts.model_file import MODEL, open_model
from fm2.engine.scorer import load
from fm2.models import complexity
from fm2.models.registry import get_spec


def inspect(path: str | Path) -> dict[str, Any]:
    """Describe a run or a compiled model in plain values."""
    path = Path(path)
    if path.is_file():
        scorer = load(path)
        config, schema = scorer.meta["model"], scorer.schema
        plan = {"plan": scorer.meta["plan"], "dtype": scorer.dtype, "measured": scorer.meta["measured"]}
        file, counts = path, {}
    else:
        with open_model(path) as opened:
            config, schema, plan, file = opened.config, opened.schema, {}, path / MODEL
            counts = opened.counts
    spec, sizes = get_spec(config["model"]), config["field_sizes"]
    parameters = spec.count_parameters(config) if spec.count_parameters else counts["parameters"]
    return {
        "path": str(path),
        "model": config["model"],
        "features": sum(sizes),
        "parameters": parameters,
        "bytes": file.stat().st_size,
        "flops": operations(config, plan.get("plan", "")) or {"network": counts["flops"]},
        **plan,
        "fields": [
            {"name": name, "features": size, "dimension": dim}
            for name, size, dim in zip(schema.names, sizes, spec.dims(config), strict=True)
        ],
    }


def operations(config: dict[str, Any], plan: str = "") -> dict[str, int]:
    """Count floating point operations per prediction as the paper does: as trained, and by a compiled model's plan.

    >>> operations({"model": "fmfm", "field_sizes": [9] * 39, "dims": [16] * 39})
    {'direct': 403923, 'cached': 24531}
    """
    count = get_spec(config["model"]).count_flops
    counts = count(config) if count else {}
    cut = re.fullmatch(r"spectral, rank (\d+)", plan)
    return counts | ({"spectral": complexity.spectral(len(config["field_sizes"]), int(cut[1]))} if cut else {})


def print_inspection(found: dict[str, Any]) -> None:
    """Print what :func:`inspect` told."""
    print(f"{found['path']}: {found['model']}, {found['features']:,} features, {found['parameters']:,} parameters")
    compiled = f", {found['plan']}; features' numbers are {found['dtype']}" if "plan" in found else ""
    print(f"{found['bytes'] / 1e6:,.1f} MB{compiled}")
    counts = ", ".join(f"{name} {count:,}" for name, count in found["flops"].items())
    print(f"operations per prediction, by the paper's counting: {counts}")
    width = max(len(field["name"]) for field in found["fields"])
    print(f"\n{'field':<{width}}{'features':>14}{'dimension':>12}")
    for field in found["fields"]:
        print(f"{field['name']:<{width}}{field['features']:>14,}{field['dimension']:>12}")
    average = sum(field["dimension"] for field in found["fields"]) / len(found["fields"])
    print(f"{'average':<{width}}{'':>14}{average:>12.2f}")
