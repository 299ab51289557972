"""The HTML page of a reproduction: all tables, and the paper's figures 6 to 8 next to the published points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fm2.data.dataset import Dataset
from fm2.files import write_errors, write_text
from fm2.models.paper import CRITEO_DIMS
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.studies.reporting import field_sections, inputs, sections
from fm2.studies.reporting.charts import draw_quality
from fm2.studies.reporting.fields import Dimensions, Information, find_dimensions, measure_information
from fm2.studies.reporting.maps import draw_map
from fm2.studies.reporting.mutual_information import rank_correlation
from fm2.studies.reporting.page import bullets, cards, figure, page, paragraph, section, table
from fm2.studies.reproduction.published import CACHED, OPERATIONS, QUALITY, SHRUNK, SHRUNK_MODEL
from fm2.studies.reproduction.record import REPORT, Reproduction
from fm2.studies.reproduction.tables import Table
from fm2.training.run import Run

Rows = Sequence[Mapping[str, Any]]  # of table 8


def write_page(
    reproduction: Reproduction, dataset: Dataset, comparison: Comparison | None, shrunk: Rows, threads: int
) -> Path:
    """Write the page next to the tables, and return its path."""
    facts = [
        ("rows", f"{reproduction.rows:,}"),
        ("protocol", reproduction.protocol),
        ("trained models", str(len(inputs.finished(comparison)) if comparison else 0)),
        ("seeds", str(len(comparison.seeds) if comparison else 0)),
    ]
    parts = [
        cards(facts),
        bullets(reproduction.summary),
        *(_table(each) for each in reproduction.tables),
        section("Figures 6 and 7", _fields(reproduction, dataset, comparison, shrunk, threads)),
        section("Figure 8", _quality(reproduction.log, comparison, shrunk)),
        *(section(title, [bullets(texts)]) for title, texts in reproduction.lists().items()),
        sections.settings(reproduction.model_settings),
    ]
    path = reproduction.path / REPORT
    with write_errors(reproduction.path, "reproduce"):
        write_text(path, page(reproduction.title, f"{Path(reproduction.source).name}, {reproduction.path.name}", parts))
    return path


def _table(content: Table) -> str:
    notes = [paragraph(note.removeprefix("\\"), "soft") for note in content.notes]
    return section(content.title, [table(content.header, content.rows, content.text_columns), *notes])


def _fields(
    reproduction: Reproduction, dataset: Dataset, comparison: Comparison | None, shrunk: Rows, threads: int
) -> list[str]:
    """Show the mutual information of field pairs, and their cross dimensions: fm2's, and the paper's for Criteo."""
    information = measure_information(dataset, threads)
    if information is None:
        return []
    names = list(dataset.schema.names)
    dimensions = _dimensions(dataset, comparison, shrunk, threads)
    parts = [field_sections.information_figure(names, information, dimensions, range(len(names)))]
    if reproduction.log == "criteo":
        parts.append(_published_dimensions(names, information))
    return parts


def _dimensions(dataset: Dataset, comparison: Comparison | None, shrunk: Rows, threads: int) -> Dimensions | None:
    """Return the dimensions that keep 95% of the variance: those of table 8, or those that PCA of FmFM finds."""
    smaller = dims_of(shrunk, threads)
    if smaller is not None:
        return Dimensions([round(shrunk[0]["dimension"])] * len(smaller), smaller, by_pca=True)
    row = None if comparison is None else inputs.first_with_full_matrices(comparison)
    if comparison is None or row is None:
        return None
    return find_dimensions(Run.open(comparison.path / row["run"], threads), dataset)


def dims_of(shrunk: Rows, threads: int) -> list[int] | None:
    """Return the dimensions of the model in table 8 that keeps 95% of the variance, if there is one."""
    path = next((row["run"] for row in shrunk if row["variance"] == 0.95), None)
    return None if path is None else list(Run.open(path, threads).model.config["dims"])


def _published_dimensions(names: Sequence[str], information: Information) -> str:
    cross = np.minimum.outer(CRITEO_DIMS, CRITEO_DIMS).astype(np.float64)
    above = np.triu_indices(len(names), 1)
    chart = draw_map(
        "min(Dᵢ, Dⱼ)", "dimensions", names, cross, lambda i, j: f"{names[i]} × {names[j]}: {cross[i, j]:g} dimensions"
    )
    caption = (
        "From the dimensions in table 3. The paper shows figure 6 as a picture, without numbers, and calls both maps "
        "highly related."
    )
    measured = rank_correlation(information.measured[above], cross[above])
    corrected = rank_correlation(information.corrected[above], cross[above])
    if measured is not None and corrected is not None:
        caption += (
            " The rank correlation between the information measured here and the published dimensions is "
            f"{measured:.2f} ({corrected:.2f} after correcting for chance)."
        )
    return figure("Cross dimensions as published (figure 7)", [chart], caption)


def _quality(log: str, comparison: Comparison | None, shrunk: Rows) -> list[str]:
    """Show AUC against FLOPs: the models trained here, and the published ones, which the paper has for Criteo only."""
    charts = [draw_quality(comparison, shrunk)] if comparison is not None and inputs.finished(comparison) else []
    caption = "The models trained here"
    if log == "criteo":
        charts.append(draw_quality(*_published_quality()))
        caption += " and, in the last chart, the published figures" if len(charts) > 1 else ": none. Published figures"
    if not charts:
        return []
    caption += ". Hollow circles are FmFM with cached vectors, at full and reduced dimensions."
    if log == "criteo":
        caption += " The paper has no FLOPs of FvFM."
    return [figure("AUC against FLOPs per prediction", charts, caption)]


def _published_quality() -> tuple[Comparison, list[dict[str, Any]]]:
    """Return tables 4, 6 and 8 as a comparison and the rows of smaller models."""
    rows = []
    for row in QUALITY["criteo"]:
        if row.model in OPERATIONS:
            cached = CACHED if row.model == SHRUNK_MODEL else None
            values = {"model": row.model, "seed": 0, "run": "", "auc": row.test, "flops_cached": cached}
            rows.append({**dict.fromkeys(COLUMNS), **values, "flops": OPERATIONS[row.model]})
    models = [str(row["model"]) for row in rows]
    smaller = [{"variance": row.variance, "flops": row.flops, "auc": row.auc} for row in SHRUNK]
    return Comparison(Path(), "", "", "published", models, [0], rows=rows), smaller
