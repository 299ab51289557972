"""The paper's tables 1 to 4: freedom of the field matrices, parameters, dimensions and FLOPs, next to fm2's counts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.data.presets import CRITEO_FIELD_SIZES
from fm2.models.choices import Interaction
from fm2.models.paper import CRITEO_DIMS
from fm2.models.registry import get_spec
from fm2.studies.comparison.printing import optional
from fm2.studies.reproduction.protocol import HIDDEN
from fm2.studies.reproduction.published import (
    CACHED,
    CACHED_SHRUNK,
    FREEDOM,
    OPERATION_FORMULAS,
    OPERATIONS,
    PARAMETER_FORMULAS,
    PARAMETERS,
    SAMPLES,
    SHRUNK_MODEL,
    K,
    N,
    title_of,
)
from fm2.studies.reproduction.tables import Table, features_of
from fm2.training.construction import make_model

Summary = Sequence[Mapping[str, Any]]  # of a comparison


def freedom() -> Table:
    """Make table 1 from the declarations of the models."""
    rows = []
    for name, (interaction, degree) in FREEDOM.items():
        own = get_spec(name).interaction
        rows.append([title_of(name), str(own), interaction, str(get_args(Interaction).index(own)), str(degree)])
    header = ["model", "field interaction", "paper", "degree of freedom", "paper"]
    return Table("Table 1: freedom of the field matrices", header, rows, text_columns=3)


def parameters(summary: Summary, settings: Mapping[str, Mapping[str, Any]]) -> Table:
    """Make table 2: the formulas, and the trained models, whose ``settings`` are by model."""
    trained = {entry["model"]: entry["parameters"] for entry in summary}
    sizes = list(CRITEO_FIELD_SIZES)
    rows = []
    for name in [*PARAMETER_FORMULAS, *(name for name in trained if name not in PARAMETER_FORMULAS)]:
        counted = f"{_count_parameters(name, sizes):,}" if name in PARAMETER_FORMULAS else ""
        published = f"{PARAMETERS[name]:,.2f} M" if name in PARAMETERS else ""
        formula = PARAMETER_FORMULAS.get(name, "")
        rows.append([title_of(name), formula, published, counted, optional(trained.get(name), ",")])
    header = ["model", "formula", "paper, Criteo", f"at m = {SAMPLES['criteo'].features:,}, K = {K}", "trained here"]
    notes = ["Trained models count the unknown feature of every field. All counts omit the bias."]
    for linear, part in (("fields", "instead of"), ("both", "besides")):
        names = [title_of(name) for name, values in settings.items() if values.get("linear") == linear]
        if names:
            notes.append(
                f"Trained with a vector per field {part} the formula's weight per feature: {', '.join(names)}."
            )
    return Table("Table 2: parameters", header, rows, notes, text_columns=2)


def _count_parameters(name: str, sizes: Sequence[int]) -> int:
    """Count the parameters of a model's formula; Poly2 has the H of fm2's defaults."""
    spec = get_spec(name)
    assert spec.count_parameters is not None
    own: dict[str, Any] = {"dim": K} if spec.takes("dim") else {}
    own |= {"linear": "features"} if spec.takes("linear") else {}
    config = spec.config(Settings.of(name, **own).to_dict(), sizes)
    return spec.count_parameters(config | ({"dims": [K] * len(sizes)} if "dims" in config else {}))


def dimensions(dataset: Dataset, dims: Sequence[int] | None) -> Table:
    """Make table 3: the dimensions of Criteo's fields that keep 95% of the variance, and their features."""
    features = features_of(dataset)
    rows = []
    for index, (dim, size) in enumerate(zip(CRITEO_DIMS, CRITEO_FIELD_SIZES, strict=True)):
        own = "" if dims is None else str(dims[index])
        rows.append([dataset.schema.names[index], own, str(dim), f"{features[index]:,}", f"{size:,}"])
    means = [f"{sum(part) / N:.2f}" if part else "" for part in (dims, CRITEO_DIMS)]
    rows.append(["mean, sum", *means, f"{sum(features):,}", f"{sum(CRITEO_FIELD_SIZES):,}"])
    notes = [] if dims is not None else ["Table 8 computes fm2's dimensions; it was not made."]
    header = ["field", "dimension", "paper", "features", "paper"]
    return Table("Table 3: dimensions that keep 95% of the variance", header, rows, notes)


def operations(summary: Summary, shrunk: Sequence[Mapping[str, Any]]) -> Table:
    """Make table 4: FLOPs of the paper's settings, and of the trained models. ``shrunk`` are the rows of table 8."""
    trained = {entry["model"]: entry for entry in summary}
    names = [*OPERATION_FORMULAS, *(name for name in trained if name not in OPERATION_FORMULAS)]
    rows = []
    for name in names:
        formula, value = OPERATION_FORMULAS.get(name, ("", None))
        doubled = "" if value is None else f"{2 * value:,.0f}"
        published = f"{OPERATIONS[name]:,}" if name in OPERATIONS else ""
        own = optional(trained[name]["flops"], ",") if name in trained else ""
        counts = _count_operations(name)
        rows.append([title_of(name), formula, doubled, published, f"{counts[0]:,}", own])
        if name == SHRUNK_MODEL:
            own = optional(trained[name]["flops_cached"], ",") if name in trained else ""
            rows.append(["FmFM, cached", "n²K", "", f"{CACHED:,}", f"{counts[-1]:,}", own])
            smaller = next((f"{row['flops']:,}" for row in shrunk if row["variance"] == 0.95), "")
            counted = get_spec(name).count_flops
            assert counted is not None
            of_paper = counted({"field_sizes": CRITEO_FIELD_SIZES, "dims": CRITEO_DIMS})["cached"]
            cached = ["FmFM, cached, 95% of the variance", "n²K̄", "", f"{CACHED_SHRUNK:,}", f"{of_paper:,}", smaller]
            rows.append(cached)
    header = ["model", "order of growth", "2 × its value", "paper", f"fm2 at n = {N}, K = {K}", "trained here"]
    notes = [
        "The paper's settings are n = 39, K = 16, H = 200, L = 3, K' = 32, s = 0.9 (pairs), s' = 0.8 (network). fm2 "
        "counts the products in its own layers, with three hidden layers of 200 and each network's other defaults; "
        "DeepLight's are those before pruning."
    ]
    return Table("Table 4: FLOPs per prediction", header, rows, notes, text_columns=2)


@functools.cache
def _count_operations(name: str) -> list[int]:
    """Count the FLOPs of a model with the paper's n and K: as trained first, cached last."""
    spec = get_spec(name)
    options: dict[str, Any] = {"dim": K} if spec.takes("dim") else {}
    options |= {"hidden": HIDDEN} if spec.takes("hidden") else {}
    model = make_model(Settings.of(name, **options), [2] * N)
    return [model.flops(), *model.flops_by_plan().values()]
