"""The report's section on an ablation: fields, parts, gaps by frequency, and maps of embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fm2.evaluation.metrics import metric_title
from fm2.models.registry import get_spec, is_model
from fm2.studies.ablation.results import Ablation
from fm2.studies.ablation.variants import COMPLETE
from fm2.studies.reporting.ablation_charts import draw_embeddings, draw_gaps
from fm2.studies.reporting.intervals import draw_differences
from fm2.studies.reporting.page import figure, folded, paragraph, section, table
from fm2.studies.statistics import PairDifference, Statistics


def ablation_section(ablation: Ablation | None) -> str:
    """Show what each field and each part contributes. Empty without an ablation."""
    if ablation is None:
        return ""
    failed = [paragraph(f"{row['variant']}, seed {row['seed']}, failed: {row['error']}") for row in ablation.failed]
    parts = list(failed)
    if ablation.statistics is not None:
        labels = _labels(ablation)
        parts.append(_fields_figure(ablation, ablation.statistics, labels))
        parts.append(_parts_figure(ablation, ablation.statistics, labels))
    if ablation.gaps and ablation.gaps["bins"]:
        parts.append(_gaps_figure(ablation.gaps, ablation.model, _labels(ablation)))
    if ablation.embeddings:
        parts.append(_embeddings_figure(ablation.embeddings))
    return section("Ablation", parts)


def _labels(ablation: Ablation) -> dict[str, str]:
    """Return a short label for each variant."""
    labels = {COMPLETE: ablation.model}
    for variant in ablation.variants:
        if variant["kind"] == "field":
            labels[variant["name"]] = variant["name"].removeprefix("without ")
        elif variant["kind"] == "interaction" and is_model(variant["model"]):
            labels[variant["name"]] = get_spec(variant["model"]).title
        elif variant["kind"] == "linear" and variant["key"].startswith("linear-"):
            labels[variant["name"]] = f"linear: {variant['key'].removeprefix('linear-')}"
    return labels


def _pairs(ablation: Ablation, statistics: Statistics, kinds: Sequence[str]) -> dict[str, list[PairDifference]]:
    """Return the differences of the variants of some kinds by metric, the most harmful omission first."""
    names = [name for name in ablation.finished_runs(*kinds) if name != COMPLETE]
    loss = statistics.metrics["log_loss"]
    names.sort(key=lambda name: -loss.difference(name, COMPLETE).difference)
    return {
        metric: [measured.difference(name, COMPLETE) for name in names]
        for metric, measured in statistics.metrics.items()
    }


def _fields_figure(ablation: Ablation, statistics: Statistics, labels: Mapping[str, str]) -> str:
    pairs = _pairs(ablation, statistics, ["field"])
    losses = pairs["log_loss"]
    if not losses:
        return ""
    harmful = [pair for pair in losses if pair.significant and pair.difference > 0]
    needless = [pair for pair in losses if pair.significant and pair.difference < 0]
    caption = f"{ablation.model} trained without each field. The log loss increases most without "
    caption += f"{labels[losses[0].model]} ({losses[0].difference:+.5f}). "
    caption += f"{_count(harmful)} significantly worse, {_count(needless)} significantly better."
    return _differences_figure("Without each field", ablation, statistics, pairs, labels, caption)


def _count(pairs: Sequence[PairDifference]) -> str:
    return "1 variant is" if len(pairs) == 1 else f"{len(pairs)} variants are"


def _parts_figure(ablation: Ablation, statistics: Statistics, labels: Mapping[str, str]) -> str:
    pairs = _pairs(ablation, statistics, ["interaction", "linear", "network"])
    if not pairs["log_loss"]:
        return ""
    worse = [pair for pair in pairs["log_loss"] if pair.significant and pair.difference > 0]
    caption = f"{ablation.model} with other interactions or another linear part. {_count(worse)} significantly worse."
    return _differences_figure("With other parts", ablation, statistics, pairs, labels, caption)


def _differences_figure(
    title: str,
    ablation: Ablation,
    statistics: Statistics,
    pairs: Mapping[str, Sequence[PairDifference]],
    labels: Mapping[str, str],
    caption: str,
) -> str:
    """Draw the differences from the complete model for both metrics, with a table of the numbers."""
    charts = [
        draw_differences(f"{metric_title(metric)} − {ablation.model}", of_metric, labels)
        for metric, of_metric in pairs.items()
    ]
    auc, losses = pairs["auc"], pairs["log_loss"]
    rows = [(loss.model, str(of_auc), str(loss)) for of_auc, loss in zip(auc, losses, strict=True)]
    headings = ("variant", *(f"{metric_title(metric)} − complete" for metric in pairs))
    caption += f" {statistics.caption(ablation.split)}. Hollow dots: no significant difference."
    return figure(title, charts, caption, folded("Differences as a table", table(headings, rows)))


def _gaps_figure(gaps: Mapping[str, Any], model: str, labels: Mapping[str, str]) -> str:
    """Show the gap between training and test loss by the frequency of features (section 3.2 of the paper)."""
    models = {labels.get(name, name): entries for name, entries in gaps["models"].items()}
    others = [name for name in models if name != model]
    rows = []
    for number, title in enumerate(gaps["bins"]):
        differences = [_difference(models[name][number]) for name in others]
        rows.append((title, f"{gaps['shares'][number]:.1%}", f"{models[model][number]['gap']:+.4f}", *differences))
    headings = ("occurrences", "share in test", model, *(f"{name} − {model}" for name in others))
    caption = (
        "The mean loss of the test rows minus that of the training rows, over the rows in which a feature of this "
        "frequency occurs. The paper's section 3.2 expects a smaller gap for rare features if they share their "
        "embeddings between pairs (FmFM) than if they do not (FFM). The table has the differences of the gaps, with "
        "95% intervals from the rows, each for itself."
    )
    numbers = folded("Gaps as a table", table(headings, rows))
    return figure("Test loss minus training loss by frequency", [draw_gaps(gaps["bins"], models)], caption, numbers)


def _difference(entry: Mapping[str, float]) -> str:
    return f"{entry['difference']:+.4f} [{entry['difference_low']:+.4f}, {entry['difference_high']:+.4f}]"


def _embeddings_figure(embeddings: Sequence[Mapping[str, Any]]) -> str:
    caption = (
        "The first two principal components of a field's embeddings, weighted by frequency: the most frequent "
        "features, with larger dots for more rows. Features that are close interact alike with other fields."
    )
    return figure("Embeddings in two dimensions", [draw_embeddings(each) for each in embeddings], caption)
