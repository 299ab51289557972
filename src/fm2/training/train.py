"""``fm2.train``: train a model on a prepared dataset and write a run directory."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.artifacts.arrays import verify_arrays
from fm2.artifacts.model_file import MODEL
from fm2.artifacts.run_directory import (
    CHECKPOINT,
    EVENTS,
    HISTORY,
    LAUNCH,
    RACE,
    SETTINGS,
    SHARDED_CHECKPOINT,
    SHARDS,
    check_run_output,
    run_output,
)
from fm2.artifacts.settings import Settings, check_names, read_settings
from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error, require
from fm2.files import checksum, remove_directory, write_errors, write_files
from fm2.remote.paths import writes
from fm2.training import inputs, warm_start
from fm2.training.backend import Backend
from fm2.training.candidates import AUTO, check_effort, count_variants
from fm2.training.construction import count_torch_threads, make_backend, make_model
from fm2.training.hidden import counts_with_hidden, hidden_features
from fm2.training.loop import TrainingLoop, TrainingProgress
from fm2.training.progress import Reports
from fm2.training.race import Race, discard_race, new_record, resumed_race
from fm2.training.race_record import Record
from fm2.training.resolve import resolve_settings, trains_rowwise
from fm2.training.run import Run
from fm2.training.scorer import torch_threads
from fm2.training.torch_backend import check_device
from fm2.training.tracking import Tracker, Tracking
from fm2.training.tree_fields import TreeFields, make_tree_fields
from fm2.training.without_effect import warn_without_effect


@writes("out")
def train(
    model: str,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    start: Run | str | Path | None = None,
    learn: bool = True,
    overwrite: bool = False,
    effort: int = 1,
    row_weights: ArrayLike | str | Path | None = None,
    verify: bool = True,
    callback: Callable[[TrainingProgress], None] | None = None,
    trackers: Sequence[Tracker] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train a model and return its run, with the best state on the validation rows.

    ``model`` is the name of a model, or ``"auto"``: then several models are trained, and the best one is kept. With an
    ``effort`` of 2 or 3, several settings around the defaults are trained, and the best ones are kept. Settings that
    are given do not change. On logs of 20,000 to 2 million training rows, LR and the factorization machines are trained
    with several forms of L2 even with an ``effort`` of 1, and FmFM also with simpler field matrices, unless the penalty
    is given. The file ``race.json`` of the run lists the candidates and their scores. Trackers for TensorBoard and
    MLflow follow each candidate while it trains; other ``trackers`` follow the winner, at the end, unless they have a
    method ``candidate``.

    ``settings`` are those of :class:`fm2.artifacts.settings.Settings`; the model's defaults apply to the others.

    With ``resume`` an interrupted run continues with its own settings and ends as if it had not been interrupted.
    ``start`` is a run whose model is trained further (warm start): vocabularies grow, and known features keep their
    weights. With ``learn=False`` the model is only evaluated and saved.

    ``row_weights`` has a weight for every row of the log, in the log's order, or is the path of an .npy file. It
    multiplies the weights of the dataset in training; validation uses the weights of the dataset only. ``verify`` reads
    the dataset, and the model to start from, once to compare their checksums. The
    ``callback`` receives a :class:`~fm2.training.loop.TrainingProgress` after every step and evaluation; an exception
    that it raises stops the training. ``trackers``, such as :class:`fm2.training.trackers.TensorBoard`, receive the
    settings, every evaluation and the result; if one fails, the training continues without it.

    ``progress`` shows a bar; False shows nothing. By default, a terminal shows a bar, and other streams get a line now
    and then, unless there is a ``callback``.
    """
    if not learn and (resume or start is None):
        raise Fm2Error("train: learn=False requires start= and cannot be combined with resume")
    check_effort(effort)
    check_names(settings, others=inspect.signature(train).parameters)
    dataset = Dataset.of(data)
    first = None if start is None else Run.of(start)
    path = Path(out)
    check_run_output("train", path, resume, overwrite)
    config = first.model.config if first else None
    record = resumed_race(path, model, effort, settings) if resume else None
    races = record.winner is None if record else effort > 1 or model == AUTO
    if races and not learn:
        raise Fm2Error("train: learn=False trains nothing; it cannot be combined with effort or auto")
    if not races and not resume and first is None:
        races = count_variants(model, dataset, settings) > 1
    if record and not races:
        model = record.model_to_resume(model)
    weights = None if row_weights is None else inputs.read_row_weights(row_weights, dataset)
    fingerprint = inputs.fingerprint(dataset, weights, checksum(first.path / MODEL) if first else None)
    if verify:
        dataset.verify_once()
        if first:
            verify_arrays(first.path / MODEL)
    reports = Reports(callback, progress)
    tracking = Tracking(trackers, reports)
    source = _Source(dataset, first, weights, fingerprint, path, tracking, learn)
    if races:
        record = record or new_record(model, effort, dataset, settings, config, fingerprint)
        record.check_fingerprint(path, fingerprint)
        race = Race(path, record, dataset, config, source.train, reports)
        race.check()
        first_settings = race.first_settings()
        check_device(first_settings.device)
        warn_without_effect("train", dataset, (settings, first_settings))
        with reports, training_directory(path, first_settings, resume, overwrite, record):
            race.run()
        chosen = read_settings(path / SETTINGS)
        tracking.replay(chosen, path)
        return Run.open(path, chosen["threads"])
    resolved = resolve_settings(model, dataset, settings, resumed=path if resume else None, start=config)
    warn_without_effect("train", dataset, (settings, resolved))
    loop = source.make_loop(resolved, path, tracking)
    del first, source  # the backend has the weights now
    with reports:
        _run_loop(loop, path, resume, overwrite, tracking, learn, warm_start=start is not None)
    del loop  # free its tables before the model is loaded again
    return Run.open(path, resolved.threads)


@dataclass(frozen=True)
class _Source:
    """What the trainings of a race share: data, the model to start from, row weights, their fingerprint, the run."""

    dataset: Dataset
    start: Run | None
    row_weights: NDArray[np.float32] | None
    fingerprint: dict[str, str | None]
    path: Path
    tracking: Tracking
    learn: bool = True

    def make_loop(self, settings: Settings, path: Path, callback: Callable[[TrainingProgress], None]) -> TrainingLoop:
        """Build the model, its backend and the loop that trains it."""
        backend, vocabularies, trees = _make_backend(settings, self.dataset, self.start, self.row_weights)
        trees.is_fixed = not self.learn
        rest = callback, self.row_weights, self.fingerprint, trees
        return TrainingLoop(backend, self.dataset, vocabularies, path, *rest)

    def train(
        self,
        settings: Settings,
        path: Path,
        name: str,
        resume: bool,
        until: float,
        callback: Callable[[TrainingProgress], None],
    ) -> bool:
        """Train a candidate of a race until it pauses; return whether its training has ended."""
        tracking = self.tracking.candidate(name, self.path, callback)
        loop = self.make_loop(settings, path, tracking)
        return _run_loop(loop, path, resume, not resume, tracking, warm_start=self.start is not None, until=until)


def _run_loop(
    loop: TrainingLoop,
    path: Path,
    resume: bool,
    overwrite: bool,
    tracking: Tracking,
    learn: bool = True,
    warm_start: bool = False,
    until: float = math.inf,
) -> bool:
    """Train in a run directory; return whether the training has ended."""
    threads = count_torch_threads(loop.model, loop.settings)
    with training_directory(path, loop.settings, resume, overwrite), torch_threads(threads):
        if resume:
            loop.resume()
        with tracking.following(loop.settings, path, resume):
            if learn:
                return loop.run(warm_start, until)
            loop.evaluate()
    return True


def _make_backend(
    settings: Settings, dataset: Dataset, start: Run | None, row_weights: NDArray[np.float32] | None
) -> tuple[Backend, list[Vocabulary], TreeFields]:
    """Build the initial model, or extend the one to start from, the backend that trains it, and its tree fields."""
    vocabularies = warm_start.extend_vocabularies(start, dataset) if start else dataset.vocabularies
    initialized = start is not None or not trains_rowwise(settings)  # row-by-row kernels draw the weights themselves
    fixed = warm_start.fixed_config(start) if start else {}
    sizes = [len(vocabulary) for vocabulary in vocabularies]
    owners = start.model.config.get("owners", ()) if start else dataset.schema.owners  # a cut model shares nothing
    model = make_model(settings, sizes, initialized, fixed, owners)
    trees = make_tree_fields(dataset, vocabularies, model, settings, row_weights)
    if start:
        warm_start.copy_weights(start, model, vocabularies)
        trees.begin(model)
        model.bias.data.sub_(math.log(dataset.negative_rate))  # the loop adds it again
    else:
        model.bias.data.fill_(inputs.click_log_odds(dataset, settings.positive_weight, row_weights))
    hidden = hidden_features(dataset, vocabularies, settings.unknown_dropout)
    backend = make_backend(
        model,
        settings,
        np.concatenate(list(counts_with_hidden(inputs.counts_by_field(dataset, vocabularies), hidden))),
        initialized,
        inputs.feature_weights(dataset, vocabularies),
        inputs.number_fields(dataset),
        hidden,
        inputs.counted_rows(dataset),
    )
    return backend, vocabularies, trees


@contextlib.contextmanager
def training_directory(
    path: Path, settings: Settings, resume: bool, overwrite: bool, race: Record | None = None, launch: str = ""
) -> Iterator[None]:
    """Lock the run directory and write its first files. An old model stays until a new one replaces it.

    ``launch`` names what started several workers. It is written before the settings, with their checksum: workers that
    are started again thus know whether they have begun this run.
    """
    files = {SETTINGS: require("tomli_w", "train", "writing settings").dumps(settings.used())}
    if launch:
        files[LAUNCH] = f"{launch}\n{hashlib.sha256(files[SETTINGS].encode()).hexdigest()}\n"
    if race:
        files[RACE] = race.text()
    with run_output("train", path, resume, overwrite):
        with write_errors(path, "train"):
            if not resume:
                discard_race(path)
                for name in (SHARDED_CHECKPOINT, CHECKPOINT, HISTORY, LAUNCH):
                    (path / name).unlink(missing_ok=True)
                for name in (SHARDS, EVENTS):
                    remove_directory(path / name)
            write_files(path, files, SETTINGS)
        yield
