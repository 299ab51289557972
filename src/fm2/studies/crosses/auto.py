"""``fm2.prepare_with_crosses``: prepare a log, find crosses that help, and add them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.manifest import MANIFEST
from fm2.data.prepare import prepare, resolve_schema
from fm2.errors import Fm2Error, warn
from fm2.field import CROSS_MIN_COUNT
from fm2.files import check_output, temporary_directory, write_errors
from fm2.models.registry import get_spec, spec_of_interaction
from fm2.remote.paths import writes
from fm2.schema import Field, Schema
from fm2.studies.crosses.rank import DEFAULT_ROWS, make_residuals, rank_residuals
from fm2.studies.crosses.residuals import CrossGain, Residuals, Watch
from fm2.training.train import train

MOST_CROSSES = 8
DEFAULT_MODEL = spec_of_interaction("matrix").name
LEAST_GAIN = 0.0005  # of the log loss
REMEASURED = 64  # candidates, after every choice


@writes("out")
def prepare_with_crosses(
    source: Any,
    schema: Schema | str | Path,
    out: str | Path,
    *,
    model: str = DEFAULT_MODEL,
    max_crosses: int = MOST_CROSSES,
    min_gain: float = LEAST_GAIN,
    triples: bool = False,
    min_count: int = CROSS_MIN_COUNT,
    overwrite: bool = False,
    seed: int = 0,
    threads: int = 0,
    progress: bool | None = None,
    watch: Watch = lambda step: None,
    **options: Any,
) -> tuple[Dataset, list[CrossGain]]:
    """Prepare a log like :func:`fm2.prepare`, with crosses that improve the ``model``; return both.

    The log is prepared without new crosses first, and the pairs of its fields are ranked as by
    :func:`fm2.rank_crosses`. The best one is added to the model, then the others are measured again, because their
    gains overlap, and so on. A cross is chosen if its gain on the validation rows is significant and at least the share
    ``min_gain`` of the log loss; at most ``max_crosses`` are chosen. A cross that covers far fewer validation or test
    rows than training rows is left out with a warning; the labels of test rows are not used. Finally the model is
    trained with and without the chosen crosses, which are left out unless they lower its validation log loss by the
    share ``min_gain``, too.

    The gains returned are those beyond the crosses before. ``options`` are those of :func:`fm2.prepare`.
    """
    if isinstance(schema, Dataset | Encoder):
        raise Fm2Error("prepare: crosses cannot be added to the schema of a dataset, which fm2 prepare --like reuses")
    get_spec(model, "prepare")
    if min_count < 1:
        raise Fm2Error(f"prepare: crosses need a min_count of at least 1, got {min_count}")
    schema, out = resolve_schema(schema), Path(out)
    check_output("prepare", out.resolve(), "dataset", MANIFEST, overwrite=overwrite)
    common = {**options, "seed": seed, "threads": threads, "progress": progress}
    with contextlib.ExitStack() as stack:
        with write_errors(out.parent, "prepare"):
            out.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(temporary_directory(out))
        dataset = prepare(source, schema, folder / "data", **common)
        residuals = make_residuals(
            dataset, model, rows=DEFAULT_ROWS, seed=seed, threads=threads, watch=watch, settings={}
        )
        watch("ranking pairs of fields")
        chosen = select_crosses(
            residuals,
            model,
            max_crosses=max_crosses,
            min_gain=min_gain,
            triples=triples,
            min_count=min_count,
            progress=progress,
        )
        crossed = schema.replace(fields=[*schema.fields, *_new_fields(schema, chosen, min_count)])
        if chosen:
            watch(f"training {model} with and without {len(chosen)} crosses")
            with_crosses = prepare(source, crossed, folder / "crossed", **common)
            before, after = (_validation_loss(model, each, seed, threads) for each in (dataset, with_crosses))
            if before - after < min_gain * before:
                names = ", ".join(map(str, chosen))
                warn(
                    f"prepare: left out {names}: with crosses, {model} has the validation log loss {after:.5f}, "
                    f"not much lower than {before:.5f}"
                )
                chosen, crossed = [], schema
    return prepare(source, crossed, out, overwrite=overwrite, **common), chosen


def _validation_loss(model: str, dataset: Dataset, seed: int, threads: int) -> float:
    path = dataset.path.with_name(f"{dataset.path.name}-run")
    run = train(model, dataset, path, seed=seed, threads=threads, progress=False)
    return float(run.metrics["log_loss"])


def select_crosses(
    residuals: Residuals,
    model: str,
    *,
    max_crosses: int,
    min_gain: float,
    triples: bool,
    min_count: int,
    progress: bool | None = None,
) -> list[CrossGain]:
    """Choose crosses one by one; each is measured beyond those before it."""
    ranking = rank_residuals(residuals, model, triples=triples, min_count=min_count, progress=progress)
    least = min_gain * ranking.log_loss

    def helps(cross: CrossGain) -> bool:
        return ranking.is_significant(cross) and cross.gain >= least

    candidates = list(filter(helps, ranking.crosses))[:REMEASURED]
    chosen: list[CrossGain] = []
    while candidates and len(chosen) < max_crosses:
        best, *candidates = candidates
        coverage = residuals.coverage(_indices(residuals, best), min_count)
        if lost := coverage.lost():
            warn(f"prepare: left out the cross {best}, because {lost}")
            continue
        chosen.append(best)
        residuals.add(_indices(residuals, best), min_count)
        remaining = residuals.measure([_indices(residuals, cross) for cross in candidates], min_count)
        candidates = sorted(filter(helps, remaining), key=lambda cross: -cross.gain)
    return chosen


def _indices(residuals: Residuals, cross: CrossGain) -> list[int]:
    return [residuals.names.index(name) for name in cross.fields]


def _new_fields(schema: Schema, chosen: Sequence[CrossGain], min_count: int) -> list[Field]:
    """Return crosses with names that the schema does not use."""
    names = set(schema.names)
    fields = []
    for cross in chosen:
        name = "_".join(cross.fields)
        while name in names:
            name += "_cross"
        names.add(name)
        fields.append(Field(name, cross=cross.fields, min_count=min_count))
    return fields
