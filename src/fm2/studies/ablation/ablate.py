"""``fm2.ablate``: train a model again without each field, and with its parts replaced."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import Settings, read_run_settings
from fm2.compression.retraining import measured_split
from fm2.data.dataset import Dataset
from fm2.data.reduced import without_fields
from fm2.errors import Fm2Error, Fm2Warning, name_locations, reason_of, suggest
from fm2.evaluation import metrics
from fm2.evaluation.evaluate import score_split, targets
from fm2.files import check_output, output_directory, remove_directory, write_errors, write_files
from fm2.remote.paths import writes
from fm2.studies.ablation.embeddings import map_embeddings
from fm2.studies.ablation.frequency import Part, bins_of_features, measure_gaps
from fm2.studies.ablation.results import COLUMNS, CSV, JSON, Ablation
from fm2.studies.ablation.variants import COMPLETE, KEY, Variant, plan_variants
from fm2.studies.comparison.plan import Training, state_of
from fm2.studies.result_files import PREDICTIONS
from fm2.studies.statistics import measure_statistics
from fm2.training.inputs import check_splits, fingerprint_of
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train
from fm2.training.without_effect import chosen_settings, warn_without_effect

MOST_MAPS = 6  # of embeddings, unless fields are chosen
MOST_TRAINING_ROWS = 1_000_000  # with which the training loss is measured
REDUCED = ".reduced"  # the dataset without the fields of the current variant
GAP_KINDS = ("complete", "interaction")


@writes("out")
def ablate(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    fields: Sequence[str] | None = None,
    parts: bool | None = None,
    embeddings: Sequence[str] | None = None,
    seeds: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    on_start: Callable[[str], None] = lambda variant: None,
    on_result: Callable[[dict[str, Any], Exception | None], None] = lambda row, error: None,
    **settings: Any,
) -> Ablation:
    """Train variants of a run's model and compare them with the complete model on the same test rows.

    Each field is left out in turn, with the crosses and trees that read it; ``fields`` selects some, or none at all.
    Unless ``parts`` is False, the interactions are replaced (a matrix per field pair by vectors, scalars, nothing, and
    FFM's embeddings), the linear part by the variants of the paper's section 4.5, and a network is trained without its
    hidden layers. The gap between training and test loss is measured by the frequency of features (section 3.2). The
    result also has maps of the ``embeddings`` of some fields: by default, of those that the model needs most.

    All variants are trained from scratch on ``data``, the dataset of the run, with its settings; ``settings`` override
    them. With several ``seeds``, each is trained as often, with the seed of the run and the next ones. ``resume``
    continues an interrupted ablation. ``on_start`` is called with a title before each training,
    ``on_result`` with its row afterward. If a training fails, its row has the reason in ``error``.
    """
    first, dataset, path = Run.of(run), Dataset.of(data), Path(out)
    policy: Any = {"resume": resume, "overwrite": overwrite}
    check_output("ablate", path, "ablation", JSON, **policy)
    check_splits(dataset, "ablate", measured_split(dataset))
    _check_run(first, dataset)
    _check_fields(dataset, embeddings or ())
    if seeds < 1:
        raise Fm2Error(f"ablate: seeds must be at least 1, got {seeds}")
    ablation = Ablation(
        path,
        run=name_locations(str(first.path.resolve())),
        data=name_locations(str(dataset.path.resolve())),
        fingerprint=fingerprint_of(dataset),
        split=measured_split(dataset),
        model=first.model.name,
        seeds=[],
        settings=settings,
        fields=None if fields is None else list(fields),
        parts=parts is not False,
    )
    if resume:
        ablation = _resumed(ablation, parts)
    own = read_run_settings(first.path / SETTINGS) | ablation.settings
    ablation.seeds = sorted({*ablation.seeds, *range(own["seed"], own["seed"] + seeds)})
    del own["model"]
    variants = plan_variants(ablation.model, own, dataset, ablation.fields, ablation.parts)
    trainings = _trainings(variants, ablation, dataset)
    warn_without_effect("ablate", dataset, (ablation.settings, trainings[f"{COMPLETE}-{own['seed']}"][1]))
    ablation.variants = [variant.to_dict() for variant in variants]
    with output_directory("ablate", path, "ablation", JSON, "another ablation", **policy):
        if overwrite:
            _remove_results(path)
        states = {
            name: state_of(path / name, ablation.row(name), Training(each, each.used()), "ablate")
            for name, (_, each) in trainings.items()
        }
        with write_errors(path, "ablate"):
            write_files(path, {JSON: ablation.text()}, JSON)
        for number, (name, (variant, each)) in enumerate(trainings.items(), 1):
            if states[name] != "finished":
                on_start(f"{variant.name}, training {number} of {len(trainings)}")
                options = {"resume": states[name] == "unfinished", "row_weights": row_weights, "callback": watch}
                row, error = _train(ablation, name, variant, each, dataset, options)
                ablation.put(row)
                on_result(row, error)
        if ablation.statistics is None or embeddings is not None:
            _analyze(ablation, dataset, embeddings)
    return ablation


def _check_run(run: Run, dataset: Dataset) -> None:
    """Raise an error if the run was not trained from scratch on this dataset, as far as that can be known."""
    if not (run.path / SETTINGS).is_file():
        raise Fm2Error(f"ablate: {run.path} has no {SETTINGS}, so its training settings are unknown; restore that file")
    if run.model.config.get("pruned") or run.model.config.get("signs"):
        raise Fm2Error(f"ablate: the model in {run.path} is pruned or cut; use the run that it was made from")
    if run.encoder.schema != dataset.schema or run.model.field_sizes != dataset.field_sizes:
        raise Fm2Error(f"ablate: {run.path} was trained on another dataset than {dataset.path}; pass that one")


def _check_fields(dataset: Dataset, names: Sequence[str]) -> None:
    for name in names:
        if name not in dataset.schema.names:
            raise Fm2Error(f"ablate: unknown field '{name}'; {suggest(name, dataset.schema.names)}")


def _resumed(now: Ablation, parts: bool | None) -> Ablation:
    """Return the ablation to resume, extended by what is asked for now."""
    before = Ablation.open(now.path)
    if before.fingerprint != now.fingerprint:
        raise Fm2Error(f"ablate: {now.path} uses another dataset, {before.data}; resume with that one")
    if before.run != now.run:
        raise Fm2Error(f"ablate: {now.path} is of the run {before.run}, not of {now.run}; resume with that one")
    before.settings |= now.settings
    before.parts = before.parts or bool(parts)
    if now.fields is not None:
        added = [name for name in now.fields if name not in (before.fields or ())]
        before.fields = None if before.fields is None else [*before.fields, *added]
    return before


def _trainings(
    variants: Sequence[Variant], ablation: Ablation, dataset: Dataset
) -> dict[str, tuple[Variant, Settings]]:
    """Return the settings of every training by the name of its run, and so find all errors before any work."""
    trainings = {}
    for variant in variants:
        for seed in ablation.seeds:
            try:
                settings = Settings.of(variant.model, len(dataset.train), **{**variant.settings, "seed": seed})
            except Fm2Error as error:
                raise Fm2Error(str(error).replace("train:", f"ablate: {variant.name}:", 1)) from error
            trainings[f"{variant.key}-{seed}"] = variant, settings
    return trainings


def _remove_results(path: Path) -> None:
    """Remove the runs and tables of an ablation that is replaced, and nothing else."""
    for directory in path.iterdir():
        if KEY.fullmatch(directory.name) and (directory / SETTINGS).is_file():
            remove_directory(directory)
    remove_directory(path / PREDICTIONS)
    (path / CSV).unlink(missing_ok=True)


def _train(
    ablation: Ablation, name: str, variant: Variant, settings: Settings, dataset: Dataset, options: dict[str, Any]
) -> tuple[dict[str, Any], Exception | None]:
    """Train and evaluate one variant; return its row, and the exception if it failed."""
    start = time.perf_counter()
    row = {**dict.fromkeys(COLUMNS), "variant": variant.name, "kind": variant.kind, "key": variant.key}
    row |= {"model": variant.model, "seed": settings.seed, "run": name}
    used = {key: value for key, value in settings.used().items() if key != "model"}
    reduced = ablation.path / REDUCED
    try:
        shutil.rmtree(reduced, ignore_errors=True)
        own = without_fields(dataset, variant.without, reduced) if variant.without else dataset
        overwrite = not options["resume"]
        with chosen_settings(()):
            trained = train(variant.model, own, ablation.path / name, overwrite=overwrite, **options, **used)
        row |= {"seconds": round(time.perf_counter() - start, 3), **_evaluate(ablation, trained, own, variant)}
        return row, None
    except Exception as error:  # one failed variant must not stop the others
        return row | {"seconds": round(time.perf_counter() - start, 3), "error": reason_of(error)}, error
    finally:
        shutil.rmtree(reduced, ignore_errors=True)


def _evaluate(ablation: Ablation, run: Run, dataset: Dataset, variant: Variant) -> dict[str, Any]:
    """Return the size and the metrics of a run; keep its predictions."""
    scores = score_split(run, dataset, ablation.split, operation="ablate")
    ablation.predictions.save(run.path.name, scores.probabilities())
    if variant.kind in GAP_KINDS:
        rows = _training_rows(dataset)
        ablation.predictions.save(f"{run.path.name}.train", run.probabilities(dataset.train.encoded[rows]))
    measured = metrics.evaluate(scores.labels, scores.probabilities(), scores.weights)
    size = {"parameters": run.model.n_parameters, "flops": run.model.flops()}
    return {**size, "auc": measured["auc"], "log_loss": measured["log_loss"]}


def _training_rows(dataset: Dataset) -> slice:
    """Return evenly spaced training rows, at most a million or so."""
    return slice(None, None, -(-len(dataset.train) // MOST_TRAINING_ROWS))


def _analyze(ablation: Ablation, dataset: Dataset, embeddings: Sequence[str] | None) -> None:
    """Compare the variants with the complete model, measure the gaps, and map embeddings."""
    variants = ablation.finished_runs()
    if COMPLETE not in variants:
        ablation.save()
        return
    labels, weights = targets(dataset, ablation.split)
    try:
        ablation.statistics = measure_statistics(
            labels, weights, variants, lambda run: _load(ablation, run, len(labels)), reference=COMPLETE
        )
    except Fm2Error as error:  # too few clicks for a test
        warnings.warn(f"ablate: no confidence intervals: {error}", Fm2Warning, stacklevel=3)
    ablation.gaps = _measure_gaps(ablation, dataset)
    complete = Run.open(ablation.path / variants[COMPLETE][0])
    names = _most_needed(ablation, dataset) if embeddings is None else embeddings
    maps = [map_embeddings(complete, dataset, name) for name in names]
    ablation.embeddings = [each for each in maps if each is not None][: MOST_MAPS if embeddings is None else None]
    ablation.save()


def _load(ablation: Ablation, run: str, rows: int) -> NDArray[np.float32]:
    stored = ablation.predictions.load(run, rows)
    if stored is None:
        path = ablation.predictions.path(run)
        raise Fm2Error(f"ablate: {path} is missing or damaged; use overwrite=True to train all variants again")
    return stored


def _measure_gaps(ablation: Ablation, dataset: Dataset) -> dict[str, Any] | None:
    """Measure the gap between training and test loss by frequency, for all kinds of interactions."""
    bins, rows = bins_of_features(dataset), _training_rows(dataset)
    labels, weights = targets(dataset, "train")
    sampled = dataset.train.encoded[rows], labels[rows], None if weights is None else weights[rows]
    train, test = (
        Part.of(*each, bins)
        for each in (sampled, (dataset.split(ablation.split).encoded, *targets(dataset, ablation.split)))
    )
    runs = {
        variant: [
            (_load(ablation, f"{run}.train", len(train.labels)), _load(ablation, run, len(test.labels)))
            for run in of_variant
        ]
        for variant, of_variant in ablation.finished_runs(*GAP_KINDS).items()
    }
    return measure_gaps(train, test, runs)


def _most_needed(ablation: Ablation, dataset: Dataset) -> list[str]:
    """Return the fields by how much the log loss increases without them; in the schema's order if that is unknown."""
    names = {
        variant["name"]: dataset.schema.names[int(variant["key"].split("-")[1])]
        for variant in ablation.variants
        if variant["kind"] == "field"
    }
    if ablation.statistics is None or not names:
        return list(dataset.schema.names)
    metric = ablation.statistics.metrics["log_loss"]
    costs = {
        name: metric.difference(variant, COMPLETE).difference
        for variant, name in names.items()
        if variant in metric.models
    }
    return sorted(costs, key=lambda name: -costs[name])
