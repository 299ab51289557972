"""``fm2 inspect``: the parameters, bytes, operations and dimensions of a trained or compiled model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.artifacts.calibration import Calibration, read_calibration
from fm2.artifacts.model_file import MODEL, open_model
from fm2.engine.scorer import load
from fm2.errors import not_found, printable
from fm2.models import complexity
from fm2.models.registry import get_spec
from fm2.remote.paths import local_path


def inspect(path: str | Path) -> dict[str, Any]:
    """Return the properties of a run or a compiled model as plain values."""
    path = local_path(path)
    if not path.exists():
        raise not_found("inspect: model", path, "fm2 train writes a run, fm2 compile a compiled model")
    compiled = {}
    counts = {}
    order: Sequence[int] = ()
    if path.is_file():
        scorer = load(path)
        file = path
        config, schema, calibration = scorer.meta["model"], scorer.schema, scorer.calibration
        compiled = {"plan": scorer.meta["plan"], "dtype": scorer.dtype, "measured": scorer.meta["measured"]}
        order = scorer.field_order
        counts = scorer.meta.get("counts", {})
    else:
        file = path / MODEL
        with open_model(path) as opened:
            config, schema, counts = opened.config, opened.schema, opened.counts
        calibration = read_calibration(path, config["field_sizes"], schema.fields)
    spec, sizes = get_spec(config["model"]), config["field_sizes"]
    parameters = spec.count_parameters(config) if spec.count_parameters else counts["parameters"]
    return {
        "path": str(path),
        "model": config["model"],
        "features": sum(sizes),
        "parameters": parameters,
        "bytes": file.stat().st_size,
        "flops": operations(config, compiled.get("plan", ""), order) or {"network": counts["flops"]},
        **compiled,
        **({"calibration": _describe(calibration, schema.names)} if calibration else {}),
        "fields": [
            {"name": name, "features": size, "dimension": dim}
            for name, size, dim in zip(schema.names, sizes, spec.dims(config), strict=True)
        ],
    }


def _describe(calibration: Calibration, names: Sequence[str]) -> dict[str, Any]:
    by = None if calibration.field is None else names[calibration.field]
    return {"knots": len(calibration.knots), "by": by}


def operations(config: dict[str, Any], plan: str = "", order: Sequence[int] = ()) -> dict[str, int]:
    """Count floating point operations per prediction as the paper does: as trained, and by a compiled model's plan.

    ``order`` is the order of the fields in the compiled model. Unless all dimensions are equal, it affects the count.
    """
    spec = get_spec(config["model"])
    counts = spec.count_flops(config) if spec.count_flops else {}
    cut = re.fullmatch(r"spectral, rank (\d+)", plan)
    if cut:
        return counts | {"spectral": complexity.spectral(len(config["field_sizes"]), int(cut[1]))}
    if spec.has_full_matrices and len(order) and len(set(config["dims"])) > 1:
        name = plan.partition(",")[0]  # without the share of the features that are cached
        pruned = {(i, j) for i, j in config.get("pruned", [])}
        return counts | {name: complexity.fmfm(config["dims"], name != "direct", pruned, order)}
    return counts


def print_inspection(properties: dict[str, Any]) -> None:
    """Print the result of :func:`inspect`."""
    fields = properties["fields"]
    print(
        f"{properties['path']}: {properties['model']}, {properties['features']:,} features, "
        f"{properties['parameters']:,} parameters"
    )
    plan = f", plan: {printable(properties['plan'])}, numbers: {properties['dtype']}" if "plan" in properties else ""
    print(f"{properties['bytes'] / 1e6:,.1f} MB{plan}")
    if "calibration" in properties:
        by = properties["calibration"]["by"]
        print(
            f"calibrated: {properties['calibration']['knots']} knots" + (f", shifted by {printable(by)}" if by else "")
        )
    counts = ", ".join(f"{name} {count:,}" for name, count in properties["flops"].items())
    print(f"operations per prediction, counted as in the paper: {counts}")
    names = [printable(field["name"]) for field in fields]
    width = max(map(len, names))
    print(f"\n{'field':<{width}}{'features':>14}{'dimension':>12}")
    for name, field in zip(names, fields, strict=True):
        print(f"{name:<{width}}{field['features']:>14,}{field['dimension']:>12}")
    average = sum(field["dimension"] for field in fields) / len(fields)
    print(f"{'average':<{width}}{'':>14}{average:>12.2f}")
