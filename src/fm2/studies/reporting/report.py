"""``fm2.report``: a run, or a comparison of models, as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import read_settings
from fm2.compression.retraining import measured_split
from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.evaluate import effective_rows, score_calibrated
from fm2.evaluation.metrics import calibration, calibration_bins
from fm2.files import atomic_file, check_replaceable, write_errors
from fm2.remote.paths import local_path, writes
from fm2.studies.ablation.results import JSON as ABLATION
from fm2.studies.ablation.results import Ablation
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.studies.comparison.results import JSON as COMPARISON
from fm2.studies.reporting import field_sections, inputs, sections
from fm2.studies.reporting.ablation_sections import ablation_section
from fm2.studies.reporting.fields import find_dimensions, measure_information, measure_lists, measure_strengths
from fm2.studies.reporting.page import BEGIN, page, paragraph, section
from fm2.training.inputs import fingerprint_of
from fm2.training.run import Run


@writes("out")
def report(
    source: str | Path,
    out: str | Path,
    *,
    data: Dataset | str | Path | None = None,
    shrink: str | Path | None = None,
    ablation: str | Path | None = None,
    threads: int = 0,
) -> Path:
    """Write an HTML report of a run, or of the output directory of ``fm2 compare``, and return its path.

    ``data`` is the prepared dataset; the default for a comparison is the dataset it used. Without a dataset, the report
    has no calibration, mutual information or interaction strengths. ``shrink`` is an output directory of ``fm2 shrink``
    with several shares of variance, ``ablation`` one of ``fm2 ablate``; by default, those that were made from these
    runs are searched for in ``source`` and next to it. If ``source`` itself is an ablation, the report is that of its
    run.
    """
    check_threads("report", threads)
    path = local_path(source)
    _check_out(Path(out))
    if ablation is None and (path / ABLATION).is_file():
        ablation = path
    ablated = None if ablation is None else Ablation.open(ablation, "report")
    if ablated is not None and ablation == path:
        path, data = local_path(ablated.run), data or ablated.data
    is_comparison = (path / COMPARISON).is_file()
    comparison = Comparison.open(path, "report") if is_comparison else None
    dataset, note = _open_data(data, comparison)
    if comparison is None:
        comparison = _evaluate(Run.open(path, threads), dataset)
    models = inputs.finished(comparison)
    runs = [path / row["run"] for rows in models.values() for row in rows]
    shrunk = inputs.read_shrunk(local_path(shrink)) if shrink else inputs.find_shrunk(path, runs)
    ablated = ablated or inputs.find_ablation(path, runs)
    parts = [note and paragraph(note, "soft"), *_parts(comparison, dataset, shrunk, ablated, threads)]
    title = f"Comparison of {len(models)} models" if is_comparison else f"Training run of {comparison.models[0]}"
    subtitle = f"{path.name or path}, dataset {dataset.path.name}" if dataset else str(path.name or path)
    with write_errors(Path(out).resolve().parent, "report"), atomic_file(Path(out)) as partial:
        partial.write_text(page(title, subtitle, parts), encoding="utf-8")
    return Path(out)


def _check_out(out: Path) -> None:
    """Raise an error, before any work, if the page cannot be written to ``out``."""
    if not out.resolve().parent.is_dir():
        raise Fm2Error(f"report: cannot write to {out.resolve().parent}: directory not found")
    if out.is_dir():
        raise Fm2Error(f"report: {out} is a directory; out= must be a file, such as report.html")
    check_replaceable(out, "report", "HTML page", BEGIN)


def _open_data(data: Dataset | str | Path | None, comparison: Comparison | None) -> tuple[Dataset | None, str]:
    """Open the dataset, or the one that a comparison used; return it with a note on what the report lacks."""
    missing = "without calibration, mutual information and interaction strengths; fm2 report --data DATA adds them"
    if data is not None:
        dataset = Dataset.of(data)
    elif comparison is None:
        return None, f"This report was made without the dataset, and so {missing}."
    else:
        try:
            dataset = Dataset.open(comparison.data)
        except Fm2Error:
            return None, f"The dataset {comparison.data} could not be opened. This report was made {missing}."
    if comparison is None or comparison.fingerprint == fingerprint_of(dataset):
        return dataset, ""
    note = "is not the dataset of the comparison; the sections on calibration and fields describe other rows"
    return dataset, f"{dataset.path} {note}."


def _evaluate(run: Run, dataset: Dataset | None) -> Comparison:
    """Evaluate one run, on test rows if there are any. Without a dataset, use its metrics from training."""
    split = measured_split(dataset) if dataset is not None else "validation"
    metrics = run.evaluate(dataset, split) if dataset is not None else run.metrics
    model, size = run.model.name, {"parameters": run.model.n_parameters, "flops": run.model.flops()}
    scores = {name: metrics[name] for name in ("auc", "log_loss")}
    row = {**dict.fromkeys(COLUMNS), "model": model, "seed": 0, "run": "", **size, **scores}
    return Comparison(run.path, "", "", split, [model], [0], rows=[row])


def _parts(
    comparison: Comparison,
    dataset: Dataset | None,
    shrunk: Sequence[Mapping[str, Any]],
    ablation: Ablation | None,
    threads: int,
) -> list[str]:
    models = inputs.finished(comparison)
    if not models:
        return [sections.models(comparison, shrunk)]
    facts = []
    if dataset is not None:
        facts = [("training rows", f"{len(dataset.train):,}"), ("fields", f"{len(dataset.field_sizes):,}")]
        impressions = dataset.manifest["splits"]["train"].get("impressions")
        if impressions is not None:
            facts.insert(1, ("training impressions", f"{impressions:,}"))
    paths = {model: comparison.path / rows[0]["run"] for model, rows in models.items()}
    with_settings = {model: path / SETTINGS for model, path in paths.items() if (path / SETTINGS).is_file()}
    best = inputs.ranked(comparison)[0]["model"]
    run = Run.open(paths[best], threads)
    if run.negative_rate != 1:
        facts.append(("rows without a click in training", f"{run.negative_rate:.3g} of all"))
    with_matrices = (inputs.first_with_full_matrices(comparison) or {"model": best})["model"]
    return [
        sections.summary(comparison, facts),
        sections.models(comparison, shrunk),
        sections.learning({model: inputs.read_evaluations(path) for model, path in paths.items()}),
        _calibration(run, best, comparison.split, dataset),
        _fields(run if with_matrices == best else Run.open(paths[with_matrices], threads), dataset, threads),
        ablation_section(ablation),
        sections.shrinking(shrunk),
        sections.settings({model: read_settings(file) for model, file in with_settings.items()}),
    ]


def _calibration(run: Run, name: str, split: str, dataset: Dataset | None) -> str:
    if dataset is None or not len(dataset.split(split)):
        return ""
    scores = score_calibrated(run, dataset, split)
    labels, weights, predicted = scores.labels, scores.weights, scores.probabilities(run.calibration)
    ratio = calibration(labels, predicted, weights) if labels.any() else None
    if weights is not None:  # the bins' standard errors depend on the number of independent rows
        weights = weights * (effective_rows(dataset, split) / weights.sum(dtype=np.float64))
    bins, errors = calibration_bins(labels, predicted, weights), scores.calibration_errors(run.calibration)
    return sections.calibration(name, split, bins, ratio, errors)


def _fields(run: Run, dataset: Dataset | None, threads: int) -> str:
    names, sizes = run.encoder.schema.names, run.model.field_sizes
    information = measure_information(dataset, threads) if dataset else None
    dimensions = find_dimensions(run, dataset)
    lists = measure_lists(dataset) if dataset else []
    parts = [field_sections.lists_table(lists)] if lists else []
    if dataset is not None and information is not None and len(names) > 1:
        shown, strengths = field_sections.most_informative(information, len(names)), measure_strengths(run, dataset)
        parts.append(field_sections.information_figure(names, information, dimensions, shown))
        parts.append(field_sections.strengths_figure(names, information, run.model.name, strengths, shown))
    if dimensions is not None:
        parts.append(field_sections.dimensions_figure(names, sizes, dimensions))
    return section("Fields", parts)
