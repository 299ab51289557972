"""``fm2.reproduce``: the paper's tables and figures from one of its two logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from fm2.compression.shrink import compare as shrink_all
from fm2.data.dataset import Dataset
from fm2.data.manifest import MANIFEST
from fm2.data.prepare import prepare
from fm2.errors import Fm2Error, suggest
from fm2.remote.paths import local_path, writes
from fm2.studies.comparison.compare import compare
from fm2.studies.comparison.plan import used_settings
from fm2.studies.comparison.results import JSON as COMPARISON
from fm2.studies.comparison.results import Comparison
from fm2.studies.reproduction.page import write_page
from fm2.studies.reproduction.protocol import (
    WEIGHTINGS,
    Protocol,
    check_source,
    common_settings,
    schema_of,
    settings_per_model,
)
from fm2.studies.reproduction.published import SHRUNK, SHRUNK_MODEL, TABLES, TRAINED, models_of
from fm2.studies.reproduction.record import Reproduction, read_record
from fm2.studies.reproduction.results import Results
from fm2.training.loop import TrainingProgress

QUALITY_TABLES = {6, 7}
TRAINING_TABLES = QUALITY_TABLES | {8}


@writes("out")
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
    model_settings: Mapping[str, Mapping[str, Any]] | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    on_start: Callable[[str], None] = lambda run: None,
    on_result: Callable[[dict[str, Any], Exception | None], None] = lambda row, error: None,
    **settings: Any,
) -> Reproduction:
    """Make the paper's tables and figures from the log of ``criteo`` or ``avazu``, or from a part of it.

    Thresholds, splits and K = 16 are those of the paper. ``protocol`` selects how models are trained: with the defaults
    of ``"fm2"``, as described in the ``"paper"``, or as in the code of its ``"authors"`` as far as possible. ``models``
    are names from the paper's tables, or ``all``; the default are those that its authors trained. ``settings`` and
    ``model_settings`` override the protocol; they and the other options are those of :func:`fm2.compare`. The results
    are written to ``out``: ``data``, ``compare``, ``shrink``, the tables, and ``reproduction.html`` with the figures.
    """
    source = local_path(source)
    reproduction = _plan(log, source, Path(out), protocol, models, tables, resume, overwrite)
    threads = int(settings.get("threads", 0))
    dataset = _prepare(reproduction, resume, overwrite, threads)
    reproduction.rows = sum(split["rows"] for split in dataset.manifest["splits"].values())
    results = Results(reproduction, dataset, threads)
    results.save()
    if not TRAINING_TABLES & set(reproduction.numbers):
        write_page(reproduction, dataset, None, (), threads)
        return reproduction
    path = reproduction.path / "compare"
    before = Comparison.open(path) if resume and (path / COMPARISON).is_file() else None
    common, per_model = _settings(reproduction, before, settings, model_settings or {})
    comparison = compare(
        dataset,
        path,
        reproduction.models,
        seeds=seeds,
        resume=before is not None,
        overwrite=overwrite and path.exists(),
        model_settings=per_model,
        watch=watch,
        on_start=on_start,
        on_result=on_result,
        **used_settings(reproduction.models, common),
    )
    results.add_comparison(comparison)
    results.save()
    if 8 in reproduction.numbers:
        results.add_shrunk(_shrink(reproduction, comparison, dataset, resume, overwrite, watch, on_start))
        results.save()
    write_page(reproduction, dataset, comparison, results.shrunk, threads)
    return reproduction


def _plan(
    log: str,
    source: str | Path,
    out: Path,
    protocol: Protocol,
    models: str | Sequence[str] | None,
    tables: Sequence[int] | None,
    resume: bool,
    overwrite: bool,
) -> Reproduction:
    """Check the arguments, and add them to those of a reproduction that is resumed."""
    for name, value, choices in (("log", log, TABLES), ("protocol", protocol, get_args(Protocol))):
        if value not in choices:
            raise Fm2Error(f"reproduce: unknown {name} '{value}'; choose one of {', '.join(choices)}")
    before = read_record(out, log, source, protocol, resume, overwrite)
    numbers = sorted(set(tables or before.get("numbers", TABLES[log])))
    for number in numbers:
        if number not in TABLES[log]:
            available = ", ".join(map(str, TABLES[log]))
            raise Fm2Error(f"reproduce: table {number} is not a table of {log}; choose from {available}")
    names = _check_models(log, models) if models else list(_default_models(numbers))
    if before and not models and before.get("models") != list(_default_models(before.get("numbers", []))):
        names = []  # the models were chosen explicitly before
    names = _check_models(log, [*before.get("models", []), *names])
    if 8 in numbers and SHRUNK_MODEL not in names:
        raise Fm2Error(f"reproduce: table 8 requires the model {SHRUNK_MODEL}; add it to models=, or omit table 8")
    return Reproduction(out, log, str(Path(source).resolve()), protocol, names, numbers)


def _default_models(numbers: Sequence[int]) -> Sequence[str]:
    return TRAINED if QUALITY_TABLES & set(numbers) else (SHRUNK_MODEL,)


def _check_models(log: str, models: str | Sequence[str]) -> list[str]:
    """Return the named models in the order of the paper's table."""
    available = models_of(log)
    names = [name.strip() for name in models.split(",")] if isinstance(models, str) else list(models)
    for name in names:
        if name not in (*available, "all"):
            hint = suggest(name, [*available, "all"])
            raise Fm2Error(f"reproduce: the paper's tables for {log} have no model '{name}'; {hint}")
    return [name for name in available if name in names or "all" in names]


def _prepare(reproduction: Reproduction, resume: bool, overwrite: bool, threads: int) -> Dataset:
    """Prepare the log as the protocol says, unless a previous call did."""
    path = reproduction.path / "data"
    if resume and (path / MANIFEST).is_file():
        return Dataset.open(path)
    check_source(reproduction.source)
    reproduction.save()
    return prepare(
        reproduction.source,
        schema_of(reproduction.log, reproduction.protocol),
        path,
        fractions=(0.8, 0.1, 0.1),
        split="random",
        vocabulary="train" if reproduction.protocol == "fm2" else "all",  # the paper's code includes the test rows
        overwrite=overwrite,
        threads=threads,
    )


def _settings(
    reproduction: Reproduction,
    before: Comparison | None,
    settings: dict[str, Any],
    model_settings: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the common settings and those of single models.

    Later layers override earlier ones: the protocol, the comparison that is resumed, the arguments.
    """
    common = common_settings(reproduction.protocol) | (before.settings if before else {}) | settings
    per_model: dict[str, dict[str, Any]] = {}
    for layer in (
        settings_per_model(reproduction.protocol, reproduction.log, reproduction.models),
        before.model_settings if before else {},
    ):
        for name, values in layer.items():
            allowed = {key: value for key, value in values.items() if key not in settings}
            per_model[name] = per_model.get(name, {}) | allowed
    return common, per_model | {name: per_model.get(name, {}) | dict(own) for name, own in model_settings.items()}


def _shrink(
    reproduction: Reproduction,
    comparison: Comparison,
    dataset: Dataset,
    resume: bool,
    overwrite: bool,
    watch: Callable[[TrainingProgress], None],
    on_start: Callable[[str], None],
) -> list[list[dict[str, Any]]]:
    """Return the rows of table 8, by seed: FmFM trained from scratch for every share of the variance, as in the paper.

    Each seed starts from its own full model, whose embeddings determine the dimensions.
    """
    tables = []
    first = f"{SHRUNK_MODEL}-{comparison.seeds[0]}"
    for run in comparison.finished_runs().get(SHRUNK_MODEL, []):
        on_start(f"table 8, {run}")
        out = reproduction.path / ("shrink" if run == first else f"shrink-{run}")
        tables.append(
            shrink_all(
                comparison.path / run,
                dataset,
                out,
                [row.variance for row in SHRUNK if row.variance is not None],
                weighting=WEIGHTINGS[reproduction.protocol],
                resume=resume,
                overwrite=overwrite,
                watch=watch,
                on_bases=lambda bases: on_start(f"mean dimension {sum(basis.dim for basis in bases) / len(bases):.2f}"),
            )
        )
    return tables
