"""``fm2.train``: a data set and settings in, a directory with a trained model out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fm2.artifacts.model_file import MODEL
from fm2.artifacts.run_directory import CHECKPOINT, HISTORY, SETTINGS, check_run_output
from fm2.artifacts.settings import FAMILY, Settings, read_settings
from fm2.data.dataset import Dataset
from fm2.data.row_values import read_row_values
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error, require
from fm2.files import atomic_file, checksum, directory_lock, remove_partial_files
from fm2.models import FFM, DeepModel, GatheredModel, Model, Poly2, build
from fm2.models.lr import LR
from fm2.models.networks import NETWORKS
from fm2.training import warm_start
from fm2.training.backend import Backend, Floats
from fm2.training.loop import Report, TrainingLoop
from fm2.training.native_backend import NativeBackend
from fm2.training.rowwise_backend import FFMBackend, Poly2Backend, trains_rowwise
from fm2.training.run import Run
from fm2.training.scorer import torch_threads
from fm2.training.torch_backend import TorchBackend
from fm2.training.tracking import Tracker, Tracking

WORTH_THREADS, WORTH_THREADS_OF_NETWORKS = 100e6, 500e6
COUNTED_ROWS = 1 << 20
MAY_CHANGE = ("threads", "epochs", "patience")  # when a run is resumed


def train(
    model: str,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    start: Run | str | Path | None = None,
    learn: bool = True,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[Report], None] = lambda report: None,
    track: Sequence[Tracker] = (),
    **settings: Any,
) -> Run:
    """Train a model and open the directory of the run, with the best state that validation saw.

    ``settings`` are those of :class:`fm2.artifacts.settings.Settings`; what is not given is the model's default. With
    ``resume`` a run that was interrupted goes on, and ends where it would have ended; its settings are the defaults
    then. ``start`` is a run whose model is trained further: vocabularies grow, old features keep what they learned; if
    it is not to ``learn``, that is all, and the model is evaluated and kept as it is.
    ``row_weights`` has a number for every row of the log, in the log's order, or names an .npy file that has: how much
    the row counts in training. ``watch`` is called with a :class:`~fm2.training.loop.Report` after every step and
    evaluation, and what it raises stops the training. ``track`` has those who are told how it begins, each evaluation
    and how it ends, such as :class:`fm2.training.trackers.TensorBoard`; should one fail, the training goes on.
    """
    if not learn and (resume or start is None):
        raise Fm2Error("train: without learning there has to be a model to begin with, and nothing to resume")
    dataset = Dataset.of(data)
    before = None if start is None else Run.of(start)
    path = Path(out)
    check_run_output("train", path, resume, overwrite)
    chosen = _choose(model, settings, dataset, path if resume else None, before)
    weights = None if row_weights is None else read_row_weights(row_weights, dataset)
    fingerprint = {
        "another data set": fingerprint_of(dataset),
        "other row weights": fingerprint_of_weights(weights),
        "another model to begin with (--from)": checksum(before.path / MODEL) if before else None,
    }
    backend, vocabularies = _make_stepper(chosen, dataset, before, weights)
    del before  # its weights are the backend's now
    tracking = Tracking(track, watch)
    loop = TrainingLoop(backend, dataset, vocabularies, path, tracking, weights, fingerprint)
    with _directory(path, chosen, resume), torch_threads(_torch_threads(backend.model, chosen)):
        if resume:
            loop.resume()
        with tracking.following(chosen, path, resume):
            loop.run(learned=start is not None) if learn else loop.keep()
    del loop, backend  # their tables, before the model is there again
    return Run.open(path, chosen.threads)


def _choose(
    model: str, settings: dict[str, Any], dataset: Dataset, resumed: Path | None, start: Run | None
) -> Settings:
    """Give the settings: those of a run that is resumed, or of the model to go on from, with what is given changed."""
    size = len(dataset.train), len(dataset.field_sizes)
    if resumed is None:
        chosen = Settings.of(model, *size, **{**(warm_start.shape_of(start) if start else {}), **settings})
        if start:
            warm_start.check_shape(start, chosen)
        return chosen
    usual = read_settings(resumed / SETTINGS)
    if usual.get("model") != model:
        raise Fm2Error(f"train: the run in {resumed} has the model {usual.get('model')}, not {model}")
    kept = {name: value for name, value in usual.items() if name != "model"}
    chosen = Settings.of(model, *size, **{**kept, **settings})
    if start:
        warm_start.check_shape(start, chosen)
    for name, (before, value) in differences(usual, chosen).items():
        if name not in MAY_CHANGE:
            raise Fm2Error(f"train: the run in {resumed} has {name} {before}, not {value}")
    return chosen


def differences(before: Mapping[str, Any], settings: Settings) -> dict[str, tuple[Any, Any]]:
    """Give what a run's settings were, and are to be, where that is not the same."""
    values = ((name, before.get(name, getattr(Settings, name, None)), now) for name, now in settings.used().items())
    return {name: (old, now) for name, old, now in values if old != now}  # older runs have fewer settings


def fingerprint_of(dataset: Dataset) -> str:
    """Give what tells a data set from others, whatever its place."""
    return _hash(json.dumps(dataset.manifest["files"], sort_keys=True).encode())


def fingerprint_of_weights(weights: NDArray[np.float32] | None) -> str | None:
    """Give what tells row weights from others; None if there are none."""
    return None if weights is None else _hash(np.ascontiguousarray(weights))


def _hash(values: Any) -> str:
    return hashlib.sha256(values).hexdigest()


def _make_stepper(
    settings: Settings, dataset: Dataset, before: Run | None, weights: NDArray[np.float32] | None
) -> tuple[Backend, list[Vocabulary]]:
    vocabularies = warm_start.grow(before, dataset) if before else dataset.vocabularies
    drawn = before is not None or not trains_rowwise(settings)
    held = warm_start.held(before) if before else {}
    network = make_model(settings, [len(vocabulary) for vocabulary in vocabularies], drawn, held)
    if before:
        warm_start.transplant(before, network, vocabularies)
    else:
        network.bias.data.fill_(_log_odds(dataset, settings, weights))
    return make_backend(network, settings, feature_counts(dataset, vocabularies), drawn), vocabularies


def _log_odds(dataset: Dataset, settings: Settings, weights: NDArray[np.float32] | None) -> float:
    """Give the logit of the training rows' click rate: where the bias begins, and what unknown values fall back on."""
    totals = np.zeros(2)
    for begin in range(0, len(dataset.train), COUNTED_ROWS):
        some = slice(begin, begin + COUNTED_ROWS)
        counted = None if weights is None else weights[dataset.train.rows[some]]
        totals += np.bincount(dataset.train.labels[some], counted, minlength=2)
    without, clicks = totals[0], totals[1] * settings.positive_weight
    return math.log(clicks / without) if clicks and without else 0.0


def read_row_weights(given: ArrayLike | str | Path, dataset: Dataset, operation: str = "train") -> NDArray[np.float32]:
    """Read how much each row of the log counts, and check it."""
    array: NDArray[np.float32] = read_row_values(operation, "row weights", given, dataset, np.float32)
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        raise Fm2Error(f"{operation}: the weight of row {bad[0]:,} is {array[bad[0]]}; a weight is 0 or more")
    if not array.any():
        raise Fm2Error(f"{operation}: all row weights are zero")
    return array


def make_model(
    settings: Settings, field_sizes: Sequence[int], drawn: bool = True, held: Mapping[str, Any] | None = None
) -> Model:
    """Make the model that the settings describe, with its first weights if they are to be ``drawn``.

    ``held`` is what no training changes: pruned pairs of fields, signs.
    """
    config: dict[str, Any] = {"model": settings.model, "field_sizes": list(field_sizes)}
    if settings.model == "poly2":
        config["hash_bits"] = settings.hash_bits
    elif settings.model != "lr":
        dim = {"dim" if settings.model == "ffm" else "dims": settings.dim}
        config |= {**dim, "embedding_std": settings.embedding_std}
    if settings.model in NETWORKS:
        config |= {name: settings.to_dict()[name] for name in NETWORKS[settings.model].option_names}
    elif settings.model in FAMILY:
        config |= {"linear": settings.linear} if settings.linear else {}
        config |= {"interaction_std": settings.matrix_std, "linear_std": settings.matrix_std}
    return build(config | dict(held or {}), seed=settings.seed if drawn else None)


def make_backend(model: Model, settings: Settings, counts: NDArray[np.int64], drawn: bool = True) -> Backend:
    """Choose what moves the weights: native code on the CPU, torch elsewhere."""
    if trains_rowwise(settings) and isinstance(model, FFM):
        return FFMBackend(model, settings, drawn)
    if trains_rowwise(settings) and isinstance(model, Poly2 | LR):
        return Poly2Backend(model, settings)
    scale = np.maximum(counts, 1).astype(np.float32) ** np.float32(-settings.l2_power)
    if settings.device == "cpu" and isinstance(model, GatheredModel):
        return NativeBackend(model, settings, scale)
    return TorchBackend(model, settings, {name: _spread(model, name, scale) for name in model.tables})


def feature_counts(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> NDArray[np.int64]:
    """Tell how often each feature of each field occurs in training, the unknown one of each field first."""
    unknown = [entry["unknown"]["train"] for entry in dataset.manifest["fields"]]
    return np.concatenate([np.r_[count, v.counts] for count, v in zip(unknown, vocabularies, strict=True)])


def _spread(model: Model, name: str, scale: Floats) -> Floats:
    """Give each weight of a table the value of its feature; Poly2's pairs are no features."""
    table = model.tables[name]
    if name == "pairs":
        return np.ones(table.weight.numel(), np.float32)
    return np.repeat(scale, np.repeat(table.dims, table.field_sizes))


@contextlib.contextmanager
def _directory(path: Path, settings: Settings, resume: bool) -> Iterator[None]:
    """Keep the run's directory for this training alone. An old model stays until a new one takes its place."""
    tomli_w = require("tomli_w", "train", "writing settings")
    with directory_lock(path, "train", "another training"):
        remove_partial_files(path)
        if not resume:
            for name in (CHECKPOINT, HISTORY):
                (path / name).unlink(missing_ok=True)
        with atomic_file(path / SETTINGS) as partial:
            partial.write_text(tomli_w.dumps(settings.used()), encoding="utf-8")
        yield


def _torch_threads(model: Model, settings: Settings) -> int:
    """Tell how many threads torch should have: one where a batch's products are small, for threads wait for others."""
    if isinstance(model, DeepModel):
        worth = 3 * settings.batch_size * model.flops() > WORTH_THREADS_OF_NETWORKS
        return model.share_threads(settings.threads) if worth else 1
    work = settings.batch_size * sum(table.width for table in model.tables.values()) ** 2
    return settings.threads if model.name in ("fwfm", "fvfm") and work > WORTH_THREADS else 1
