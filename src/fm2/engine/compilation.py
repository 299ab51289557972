"""``fm2.compile``: a run's best model becomes one file that scores without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from fm2.engine import plans
from fm2.engine.encoding import encoder_sections
from fm2.engine.files import new_model
from fm2.engine.plans import Dtype, Plan
from fm2.compression.weights import Weights, read_weights
from fm2.errors import Fm2Error

PlanName = Literal["auto", "direct", "cached", "spectral"]
PREFIXED = ("fwfm", "fvfm", "fmfm")


@dataclass(frozen=True)
class Compiled:
    """What was written: where, by which plan, how large, and the largest difference that rounding made."""

    path: Path
    plan: str
    bytes: int
    error: float


def compile(
    run: str | Path, out: str | Path, *, plan: PlanName = "auto", dtype: Dtype = "f32", memory: float = float("inf")
) -> Compiled:
    """Compile the best model of a run into one file.

    ``plan`` is how FwFM, FvFM and FmFM are scored: ``direct`` applies field matrices to embeddings, ``cached`` looks
    the products up (sections 4.2 and 4.3 of the paper), of as many features as fit into ``memory`` bytes.
    """
    for name, value, choices in (("plan", plan, get_args(PlanName)), ("dtype", dtype, get_args(Dtype))):
        if value not in choices:
            raise Fm2Error(f"compile: the {name} is '{value}'; it is one of {', '.join(choices)}")
    weights = read_weights(run)
    return write(weights, _choose(weights, plan, dtype, memory), Path(out))


def write(weights: Weights, plan: Plan, out: Path) -> Compiled:
    """Write a model by a plan."""
    meta = {
        "model": weights.config,
        "schema": weights.schema.to_dict(),
        "metrics": weights.metrics,
        "plan": plan.title,
    }
    described = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with new_model(out, {**plan.sections, **encoder_sections(weights), "meta": described}) as parts:
        error = plan.write_rows(parts["rows"])
    return Compiled(out, plan.title, out.stat().st_size, error)


def _choose(weights: Weights, plan: PlanName, dtype: Dtype, memory: float) -> Plan:
    if weights.name in ("lr", "poly2"):
        return plans.sums(weights, dtype)
    if weights.name == "fm":
        return plans.machine(weights, dtype)
    if weights.name == "ffm":
        return plans.partners(weights, dtype)
    name, order = next(iter(plans.orders(weights)))
    if plan == "direct":
        return plans.prefixes(weights, order, [0] * len(order), dtype, "direct")
    return plans.prefixes(weights, order, plans.affordable(weights, order, dtype, memory), dtype, f"cached, {name}")
