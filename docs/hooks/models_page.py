"""Generate the page "Models at a glance" from the registry and from the tables of the results pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fm2.artifacts.settings import Settings
from fm2.models import build
from fm2.models.registry import specs
from fm2.models.spec import ModelSpec

Results = Mapping[str, float]  # by the title of the model

FIGURES = Path(__file__).parents[1] / "figures"
# The small Criteo log of the results pages: training rows, fields, features per field.
ROWS, FIELDS, FEATURES = 110_000, 39, 531
SIMILAR_LOSS, SIMILAR_AUC, SIMILAR_GAP = 0.001, 0.005, 0.05  # from the best model
CHEAP = 10_000  # FLOPs

INTRODUCTION = """---
hide:
  - toc
---

# Models at a glance

All models that fm2 trains, generated from their declarations (`fm2 models`) and from the results in this
documentation.

- **Parameters and FLOPs** per prediction are those of default settings on a log like the small Criteo log
  ({rows:,} training rows, {fields} fields, {features:,} features). *Cached* is the count with cached vectors.
  [Reproduce the paper](../guides/reproduction.md) compares those of the paper's settings.
- **Criteo** is the test log loss of [all models on Criteo](../figures/networks.md#all-models-on-criteo), one seed. Its
  13,687 test rows do not distinguish log losses that differ by less than about 0.002: most networks are tied.
  [`fm2 compare`](../guides/comparison.md#significance) reports which differences are significant.
- **Generated** is the test AUC on
  [two million generated rows](../figures/networks.md#two-million-generated-rows), where interactions decide.
- **Gap closed** is the share of the log loss between LR and the true probabilities on
  [five million generated rows](../figures/quality.md#generated-logs).
- **Good at** follows from these figures. *Small logs*: within {loss:g} of the best log loss on Criteo. *Large logs*:
  within {auc:g} of the best AUC, or within {gap:.0%} of the best gap closed. *Cheap scoring*: at most {cheap:,} FLOPs.
  *Dimensions per field* and *pruned pairs* make [smaller models](../guides/compression.md). An empty cell means that no
  figure stands out.
"""
SYMBOLS = """## Equations

The logit of each model, and its paper. vᵢ is the embedding of field i and v the concatenation of all of them; wᵢ is
the weight of the feature of field i. The linear part is a weight per feature, a vector per field, or both. ⟨a, b⟩ is an
inner product, ⊙ an elementwise product, σ the sigmoid, MLP a multi-layer perceptron with output weights, LN layer
normalization.
"""


def models_page() -> str:
    """Return the page: a table of all models, and their equations."""
    facts = {"rows": ROWS, "fields": FIELDS, "features": FIELDS * FEATURES}
    limits = {"loss": SIMILAR_LOSS, "auc": SIMILAR_AUC, "gap": SIMILAR_GAP, "cheap": CHEAP}
    networks, quality = ((FIGURES / name).read_text(encoding="utf-8") for name in ("networks.md", "quality.md"))
    results = criteo_losses(networks), generated_aucs(networks), gaps_closed(quality)
    header = "| model | good at | parameters | FLOPs | cached | Criteo | generated | gap closed |"
    rows = [header, "|---|---|---:|---:|---:|---:|---:|---:|"]
    rows += [_row(spec, *results) for spec in specs()]
    equations = [
        f"**{spec.title}** (`{spec.name}`, {spec.source}): {spec.summary}.\n\n```text\n{spec.equation}\n```"
        for spec in specs()
    ]
    parts = [INTRODUCTION.format(**facts, **limits), "\n".join(rows), SYMBOLS, *equations]
    return "\n\n".join(parts) + "\n"


def _row(spec: ModelSpec, losses: Results, aucs: Results, gaps: Results) -> str:
    sizes = [FEATURES] * FIELDS
    settings = Settings.of(spec.name, ROWS, sizes).to_dict()
    if spec.dimensions != "scalar" and "dim" in spec.settings:
        settings["dim"] = [settings["dim"]] * FIELDS
    model = build(spec.config(settings, sizes))
    plans = model.flops_by_plan()
    cells = [
        f"**{spec.title}**",
        ", ".join(_strengths(spec, min(plans.values()), losses, aucs, gaps)),
        f"{model.n_parameters:,}",
        f"{model.flops():,}",
        f"{plans['cached']:,}" if "cached" in plans else "",
        f"{losses[spec.title]:.5f}" if spec.title in losses else "",
        f"{aucs[spec.title]:.4f}" if spec.title in aucs else "",
        f"{gaps[spec.title]:.0%}" if spec.title in gaps else "",
    ]
    return f"| {' | '.join(cells)} |"


def _strengths(spec: ModelSpec, flops: int, losses: Results, aucs: Results, gaps: Results) -> list[str]:
    """Return what the figures say a model is good at."""
    large = aucs.get(spec.title, 0.0) >= max(aucs.values()) - SIMILAR_AUC
    large = large or gaps.get(spec.title, 0.0) >= max(gaps.values()) - SIMILAR_GAP
    strengths = {
        "small logs": losses.get(spec.title, 1.0) <= min(losses.values()) + SIMILAR_LOSS,
        "large logs": large,
        "cheap scoring": flops <= CHEAP,
        "dimensions per field": spec.dimensions == "per_field",
        "pruned pairs": spec.learns_field_matrices,
    }
    return [strength for strength, has in strengths.items() if has]


def criteo_losses(page: str) -> dict[str, float]:
    """Return the log loss of each model by its title, from the table with two models per row."""
    losses = {}
    for row in _table(page, "All models on Criteo")[1:]:
        for title, _, loss in (row[:3], row[3:]):
            if title:
                losses[_full_title(title)] = float(loss)
    return losses


def generated_aucs(page: str) -> dict[str, float]:
    """Return the AUC of each model on the generated rows, from the table and from the text around it."""
    titles, values = _table(page, "Two million generated rows")[:2]
    aucs = {_full_title(title): float(value) for title, value in zip(titles, values, strict=True)}
    known = "|".join(re.escape(spec.title) for spec in sorted(specs(), key=lambda spec: -len(spec.title)))
    text = re.split(r"\n## ", page.split("## Two million generated rows")[1])[0]
    for title, value in re.findall(rf"\b({known})(?: reaches)? (0\.\d{{4}})", text):
        aucs.setdefault(title, float(value))
    return aucs


def gaps_closed(page: str) -> dict[str, float]:
    """Return the share of the gap between LR and the truth that each model closes."""
    rows = _table(page, "Generated logs")
    (values,) = (row for row in rows if row[0] == "gap closed")
    shares = zip(rows[0][1:-1], values[1:-1], strict=True)  # without the true probabilities
    return {title: float(value.removesuffix("%")) / 100 for title, value in shares if value}


def _full_title(title: str) -> str:
    return {"DCN": "Deep & Cross"}.get(title, title)


def _table(page: str, heading: str) -> Sequence[list[str]]:
    """Return the cells of the first table below a heading, without the line of dashes."""
    lines = page.split(f"## {heading}\n")[1].split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    end = next(number for number, line in enumerate(lines[start:], start) if not line.startswith("|"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]
    return [row for row in rows if not set("".join(row)) <= set("-:")]
