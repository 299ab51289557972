"""``fm2.reproduce``: from one of the paper's two logs to its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from fm2.compression.shrink import compare as shrink_all
from fm2.data.dataset import MANIFEST, Dataset
from fm2.data.prepare import prepare
from fm2.errors import Fm2Error, suggest
from fm2.studies.comparison.compare import compare
from fm2.studies.comparison.plan import usable
from fm2.studies.comparison.results import JSON as COMPARISON
from fm2.studies.comparison.results import Comparison
from fm2.studies.reproduction import tables as made
from fm2.studies.reproduction.protocol import (
    Protocol,
    check_source,
    common_settings,
    own_settings,
    preparation,
    schema_of,
    weighting,
)
from fm2.studies.reproduction.published import QUALITY, SHRUNK, SHRUNK_MODEL, TABLES, TRAINED
from fm2.studies.reproduction.record import Reproduction, record_of
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run


def reproduce(
    log: str,
    source: str | Path,
    out: str | Path,
    *,
    protocol: Protocol = "fm2",
    models: str | Sequence[str] | None = None,
    tables: Sequence[int] | None = None,
    seeds: int | Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    begin: Callable[[str], None] = lambda run: None,
    tell: Callable[[dict[str, Any], Exception | None], None] = lambda row, error: None,
    **settings: Any,
) -> Reproduction:
    """Make the paper's tables 5 to 8 from the file of ``criteo`` or ``avazu``, all of it or a part.

    Thresholds, splits and K = 16 are the paper's. ``protocol`` says how models are trained: with the defaults of
    ``"fm2"``, or as in the ``"paper"``, whose code also counts values over the test rows. ``models`` are names of the
    paper's table, or ``all``; by default those that its authors trained. ``settings`` and ``own`` change the protocol's
    as in :func:`fm2.compare`, of which the rest is. What is done is in ``out``: ``data``, ``compare``, ``shrink``, and
    the tables.
    """
    begun = _begin(log, source, Path(out), protocol, models, tables, resume, overwrite)
    dataset = _data(begun, resume, overwrite, int(settings.get("threads", 0)))
    begun.rows = sum(entry["rows"] for entry in dataset.manifest["splits"].values())
    begun.tables = [made.samples(log, dataset)] if 5 in begun.numbers else []
    begun.save()
    if begun.numbers == [5]:
        return begun
    place = begun.path / "compare"
    before = Comparison.open(place) if resume and (place / COMPARISON).is_file() else None
    common, single = _settings(begun, before, settings, own or {})
    comparison = compare(
        dataset,
        place,
        begun.models,
        seeds=seeds,
        resume=before is not None,
        overwrite=overwrite and place.exists(),
        own=single,
        watch=watch,
        begin=begin,
        tell=tell,
        **usable(begun.models, common),
    )
    begun.failed = comparison.failed
    if {6, 7} & set(begun.numbers):
        begun.tables += _tables_of(begun, comparison, dataset, int(settings.get("threads", 0)))
    begun.save()
    if 8 in begun.numbers:
        begun.tables += _shrunk(begun, comparison, dataset, resume, overwrite, watch, begin)
        begun.save()
    return begun


def _begin(
    log: str,
    source: str | Path,
    out: Path,
    protocol: Protocol,
    models: str | Sequence[str] | None,
    tables: Sequence[int] | None,
    resume: bool,
    overwrite: bool,
) -> Reproduction:
    """Check what is asked for, and what is there; models are added to those of before."""
    for what, value, choices in (("log", log, TABLES), ("protocol", protocol, get_args(Protocol))):
        if value not in choices:
            raise Fm2Error(f"reproduce: the {what} is '{value}'; it is one of {', '.join(choices)}")
    before = record_of(out, log, source, protocol, resume, overwrite)
    numbers = sorted(set(tables or before.get("numbers", TABLES[log])))
    for number in numbers:
        if number not in TABLES[log]:
            there = ", ".join(map(str, TABLES[log]))
            raise Fm2Error(f"reproduce: table {number} is none of {log}'s; there are {there}")
    named = _models(log, models) if models else _usual(numbers)
    if before and not models and before.get("models") != list(_usual(before.get("numbers", []))):
        named = []  # they were chosen then, and need not be named again
    names = _models(log, [*before.get("models", []), *named])
    if 8 in numbers and SHRUNK_MODEL not in names:
        raise Fm2Error(f"reproduce: table 8 needs {SHRUNK_MODEL} among the models; leave it out by --tables 5,6")
    return Reproduction(out, log, str(Path(source).resolve()), protocol, names, numbers)


def _usual(numbers: Sequence[int]) -> Sequence[str]:
    """Give the models that tables need where none are named."""
    return TRAINED if {6, 7} & set(numbers) else (SHRUNK_MODEL,)


def _models(log: str, models: str | Sequence[str]) -> list[str]:
    there = [row.model for row in QUALITY[log]]
    words = [word.strip() for word in models.split(",")] if isinstance(models, str) else list(models)
    for word in words:
        if word not in (*there, "all"):
            raise Fm2Error(f"reproduce: the table has no model '{word}'; {suggest(word, [*there, 'all'])}")
    wanted = there if "all" in words else words
    return [name for name in there if name in wanted]


def _data(begun: Reproduction, resume: bool, overwrite: bool, threads: int) -> Dataset:
    """Prepare the log as the paper did, unless that is done."""
    place = begun.path / "data"
    if resume and (place / MANIFEST).is_file():
        return Dataset.open(place)
    check_source(begun.source)
    begun.save()
    schema, options = schema_of(begun.log, begun.protocol), preparation(begun.protocol)
    return prepare(begun.source, schema, place, overwrite=overwrite, threads=threads, **options)


def _settings(
    begun: Reproduction, before: Comparison | None, given: dict[str, Any], own: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Give the settings of all models and of single ones: the protocol's, those of before, and what is given."""
    common = common_settings(begun.protocol) | (before.settings if before else {}) | given
    layers = [own_settings(begun.protocol, begun.models), before.own if before else {}, own]
    single: dict[str, dict[str, Any]] = {}
    for name, some in (entry for layer in layers for entry in layer.items()):
        single[name] = single.get(name, {}) | {key: value for key, value in some.items() if key not in given}
    return common, single


def _tables_of(begun: Reproduction, comparison: Comparison, dataset: Dataset, threads: int) -> list[made.Table]:
    good = [row["run"] for row in comparison.rows if not row["error"]]
    others = {run: made.aucs(Run.open(comparison.path / run, threads), dataset) for run in good}
    return [made.quality(begun.log, comparison, others), made.costs(begun.log, comparison)]


def _shrunk(
    begun: Reproduction,
    comparison: Comparison,
    dataset: Dataset,
    resume: bool,
    overwrite: bool,
    watch: Callable[[TrainingProgress], None],
    begin: Callable[[str], None],
) -> list[made.Table]:
    """Train FmFM a second time for every share of the variance, from scratch as the paper does."""
    good = [row["run"] for row in comparison.rows if row["model"] == SHRUNK_MODEL and not row["error"]]
    if not good:
        return []
    first = comparison.path / good[0]
    begin("table 8")
    variances = [row.variance for row in SHRUNK if row.variance is not None]
    rows = shrink_all(
        first,
        dataset,
        begun.path / "shrink",
        variances,
        weighting=weighting(begun.protocol),
        resume=resume,
        overwrite=overwrite,
        watch=watch,
        tell=lambda bases: begin(f"{sum(basis.dim for basis in bases) / len(bases):.2f} dimensions on average"),
    )
    return [made.shrunk(rows)]
