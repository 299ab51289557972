"""``fm2.report``: a run, or a comparison of models, as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fm2.artifacts.settings import read_settings
from fm2.compression.retraining import measured_split
from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.metrics import calibration, calibration_bins
from fm2.files import atomic_file, check_replaceable, write_errors
from fm2.studies.comparison.results import JSON as COMPARISON
from fm2.studies.reporting import sections
from fm2.studies.reporting.field_sections import dimensions_figure, information_figure, most_telling, strengths_figure
from fm2.studies.reporting.fields import find_dimensions, measure_information, measure_strengths
from fm2.studies.reporting.inputs import Entry, Study, find_shrunk, read_comparison, read_learning, read_shrunk
from fm2.studies.reporting.markup import paragraph, section
from fm2.studies.reporting.page import BEGIN, page
from fm2.training.inputs import fingerprint_of
from fm2.training.run import SETTINGS, Run


def report(
    source: str | Path,
    out: str | Path,
    *,
    data: Dataset | str | Path | None = None,
    shrink: str | Path | None = None,
    threads: int = 0,
) -> Path:
    """Write a page on a run, or on a directory that ``fm2 compare`` made, and give its path.

    ``data`` is the prepared data set; a comparison knows its own. Without it the page has no calibration, no mutual
    information and no strengths. ``shrink`` is a directory of ``fm2 shrink`` with several shares of variance; one that
    was made of a run of this source, and is in its directory or beside it, is found.
    """
    check_threads("report", threads)
    path = Path(source)
    _check_out(Path(out))
    compared = (path / COMPARISON).is_file()
    study = read_comparison(path) if compared else None
    dataset, note = _open_data(data, study)
    if study is None:
        study = _study_of(Run.open(path, threads), dataset)
    runs = [entry.path for entry in study.entries if entry.error is None]
    shrunk = read_shrunk(Path(shrink)) if shrink else find_shrunk(path, runs)
    parts = [note and paragraph(note, "soft"), *_parts(study, dataset, shrunk, threads)]
    kind = f"{len(study.models)} models compared" if compared else f"A run of {study.entries[0].model}"
    about = f"{path.name or path}, on {dataset.path.name}" if dataset else str(path.name or path)
    with write_errors(Path(out).resolve().parent, "report"), atomic_file(Path(out)) as partial:
        partial.write_text(page(kind, about, parts), encoding="utf-8")
    return Path(out)


def _check_out(out: Path) -> None:
    """Refuse, before all work, a place where no page can be, or where something else is."""
    if not out.resolve().parent.is_dir():
        raise Fm2Error(f"report: cannot write to {out.resolve().parent}: there is no such directory")
    if out.is_dir():
        raise Fm2Error(f"report: {out} is a directory; --out is the page's file, such as report.html")
    check_replaceable(out, "report", "HTML page", BEGIN)


def _open_data(data: Dataset | str | Path | None, study: Study | None) -> tuple[Dataset | None, str]:
    """Open the data set that is given, or the one that a comparison names if it is there; tell what is amiss."""
    without = (
        "there is no calibration, no mutual information and no strength of pairs here; fm2 report --data DATA adds them"
    )
    if data is not None:
        dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    elif study is None or study.data is None:
        return None, f"The data set was not given, so {without}."
    else:
        try:
            dataset = Dataset.open(study.data)
        except Fm2Error:
            return None, f"The data set of the comparison, {study.data}, could not be opened, so {without}."
    if study is None or study.fingerprint == fingerprint_of(dataset):
        return dataset, ""
    return dataset, f"{dataset.path} is not what the models were compared on: calibration and fields are of other rows."


def _study_of(run: Run, dataset: Dataset | None) -> Study:
    """Measure one run: on test rows if there are any, or as its training did."""
    split = measured_split(dataset) if dataset is not None else "validation"
    found = run.evaluate(dataset, split) if dataset is not None else run.metrics
    history = [row for row in read_learning(run.path) if row.get("best")]
    entry = Entry(
        run.model.name,
        seed=0,
        path=run.path,
        parameters=run.model.n_parameters,
        flops=run.model.flops(),
        auc=found["auc"],
        log_loss=found["log_loss"],
        best_epoch=history[-1]["epoch"] if history else None,
    )
    return Study(run.path, split, [entry])


def _parts(study: Study, dataset: Dataset | None, shrunk: Sequence[Mapping[str, Any]], threads: int) -> list[str]:
    best = study.best
    if best is None:
        return [sections.models(study, shrunk)]
    facts = (
        [("training rows", f"{len(dataset.train):,}"), ("fields", f"{len(dataset.field_sizes):,}")] if dataset else []
    )
    firsts = {model: some[0].path for model, some in study.models.items()}
    run = Run.open(best.path, threads)
    matrices = study.first_with_full_matrices() or best
    return [
        sections.summary(study, best, facts),
        sections.models(study, shrunk),
        sections.learning({model: read_learning(place) for model, place in firsts.items()}),
        _calibration(run, best.model, study.split, dataset),
        _fields(run if matrices == best else Run.open(matrices.path, threads), dataset, threads),
        sections.shrinking(shrunk),
        sections.settings({m: read_settings(at / SETTINGS) for m, at in firsts.items() if (at / SETTINGS).is_file()}),
    ]


def _calibration(run: Run, name: str, split: str, dataset: Dataset | None) -> str:
    if dataset is None or not len(dataset.split(split)):
        return ""
    rows = dataset.split(split)
    found = run.probabilities(rows.ids, run.id_map(dataset))
    over_all = calibration(rows.labels, found) if rows.labels.any() else None
    return sections.calibration(name, split, calibration_bins(rows.labels, found), over_all)


def _fields(run: Run, dataset: Dataset | None, threads: int) -> str:
    names, sizes = run.encoder.schema.names, run.model.field_sizes
    information = measure_information(dataset, threads) if dataset else None
    dimensions = find_dimensions(run, dataset)
    parts = []
    if dataset is not None and information is not None and len(names) > 1:
        shown, strengths = most_telling(information, len(names)), measure_strengths(run, dataset)
        parts.append(information_figure(names, information, dimensions, shown))
        parts.append(strengths_figure(names, information, run.model.name, strengths, shown))
    if dimensions is not None:
        parts.append(dimensions_figure(names, sizes, dimensions))
    return section("Fields", parts)
