"""``fm2.train``: a data set and settings in, a directory with a trained model out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fm2 import _native
from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error, needs
from fm2.models import FFM, GatheredModel, Model, Poly2, build
from fm2.models.lr import LR
from fm2.training import growth
from fm2.training.checkpoints import load_arrays
from fm2.training.loop import Loop, Report
from fm2.training.native import NativeStepper
from fm2.training.plain import PlainStepper
from fm2.training.rowwise import FfmStepper, Poly2Stepper, learns_by_rows
from fm2.training.run import CHECKPOINT, HISTORY, MODEL, SETTINGS, Run
from fm2.training.settings import Settings
from fm2.training.stepper import Floats, Stepper

WORTH_THREADS = 100e6


def train(
    model: str,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    start: Run | str | Path | None = None,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[Report], None] = lambda report: None,
    **settings: Any,
) -> Run:
    """Train a model and open the directory of the run, with the best state that validation saw.

    ``settings`` are those of :class:`fm2.training.settings.Settings`; what is not given is the model's default. With
    ``resume`` a run that was interrupted goes on, and ends where it would have ended. ``start`` is a run whose model is
    trained further: vocabularies grow, old features keep what they learned. ``row_weights`` has a number for every row
    of the log, in the log's order, or names an .npy file that has: how much the row counts in training.
    """
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    chosen, path = Settings.of(model, **settings), Path(out)
    weights = None if row_weights is None else _read_weights(row_weights, dataset)
    _make_directory(path, chosen, resume, overwrite)
    before = Run.open(start) if isinstance(start, str | Path) else start
    with _make_loop(dataset, chosen, path, before, weights, watch) as loop:
        if resume and (path / CHECKPOINT).is_file():
            loop.resume()
        loop.run()
    del loop  # its tables, before the model is there again
    return Run.open(path)


@contextlib.contextmanager
def _make_loop(
    dataset: Dataset,
    settings: Settings,
    path: Path,
    before: Run | None,
    weights: NDArray[np.float32] | None,
    watch: Callable[[Report], None],
) -> Iterator[Loop]:
    vocabularies = growth.grow(before, dataset.schema.names, dataset.vocabularies) if before else dataset.vocabularies
    drawn = before is not None or not learns_by_rows(settings)
    network = make_model(settings, [len(vocabulary) for vocabulary in vocabularies], drawn)
    if before:
        growth.transplant(before, network, vocabularies)
    with _torch_threads(network, settings):
        stepper = make_stepper(network, settings, feature_counts(dataset, vocabularies), drawn)
        yield Loop(stepper, dataset, vocabularies, path, watch, weights)


def _read_weights(given: ArrayLike | str | Path, dataset: Dataset) -> NDArray[np.float32]:
    try:
        weights = np.load(given, mmap_mode="r", allow_pickle=False) if isinstance(given, str | Path) else given
        array: NDArray[np.float32] = np.asarray(weights, dtype=np.float32)
    except (OSError, ValueError) as wrong:
        raise Fm2Error(f"train: the row weights are not an array of numbers: {wrong}") from wrong
    needed = max((int(part.rows.max()) + 1 for part in (dataset.train,) if len(part)), default=0)
    if array.ndim != 1 or len(array) < needed:
        raise Fm2Error(
            f"train: the row weights have the shape {list(array.shape)}; the log has {needed:,} rows or more"
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise Fm2Error("train: a row weight is negative or not a number")
    return array


def make_model(settings: Settings, field_sizes: Sequence[int], drawn: bool = True) -> Model:
    """Make the model that the settings describe, with its first weights if they are to be ``drawn``."""
    config: dict[str, Any] = {"model": settings.model, "field_sizes": list(field_sizes)}
    if settings.model == "poly2":
        config["hash_bits"] = settings.hash_bits
    elif settings.model != "lr":
        dim = {"dim" if settings.model == "ffm" else "dims": settings.dim}
        config |= {**dim, "embedding_scale": settings.embedding_scale}
    if settings.model in ("fm", "fwfm", "fvfm", "fmfm"):
        config |= {"linear": settings.linear} if settings.linear else {}
        config |= {"interaction_scale": settings.matrix_scale, "linear_scale": settings.matrix_scale}
    return build(config, seed=settings.seed if drawn else None)


def make_stepper(model: Model, settings: Settings, counts: NDArray[np.int64], drawn: bool = True) -> Stepper:
    """Choose what moves the weights: native code on the CPU, torch elsewhere."""
    if learns_by_rows(settings) and isinstance(model, FFM):
        return FfmStepper(model, settings, drawn)
    if learns_by_rows(settings) and isinstance(model, Poly2 | LR):
        return Poly2Stepper(model, settings)
    scale = np.maximum(counts, 1).astype(np.float32) ** np.float32(-settings.l2_power)
    if settings.device == "cpu" and isinstance(model, GatheredModel):
        return NativeStepper(model, settings, scale)
    return PlainStepper(model, settings, {name: _spread(model, name, scale) for name in model.tables})


def feature_counts(dataset: Dataset, vocabularies: Sequence[Vocabulary]) -> NDArray[np.int64]:
    """Tell how often each feature of each field occurs in training, the unknown one of each field first."""
    unknown = [entry["unknown"]["train"] for entry in dataset.manifest["fields"]]
    return np.concatenate([np.r_[count, v.counts] for count, v in zip(unknown, vocabularies, strict=True)])


def _spread(model: Model, name: str, scale: Floats) -> Floats:
    """Give each weight of a table the value of its feature."""
    table = model.tables[name]
    if len(scale) != sum(table.field_sizes):
        return np.ones(table.weight.numel(), np.float32)
    return np.repeat(scale, np.repeat(table.dims, table.field_sizes))


def _make_directory(path: Path, settings: Settings, resume: bool, overwrite: bool) -> None:
    if resume:
        if not (path / SETTINGS).is_file():
            raise Fm2Error(f"train: there is no run to resume in {path}")
        _check_resumed(path, settings)
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if not overwrite:
            raise Fm2Error(f"train: {path} is there already; --resume goes on with it, --overwrite replaces it")
        if not (path / SETTINGS).is_file():
            raise Fm2Error(f"train: {path} holds something else (it has no {SETTINGS}), so it is not overwritten")
        for name in (MODEL, CHECKPOINT, HISTORY):
            (path / name).unlink(missing_ok=True)
    path.mkdir(parents=True, exist_ok=True)
    tomli_w = needs("tomli_w", "train", "writing settings")
    values = {key: value for key, value in settings.to_dict().items() if value is not None}
    (path / SETTINGS).write_text(tomli_w.dumps(values), encoding="utf-8")


def _check_resumed(path: Path, settings: Settings) -> None:
    if not (path / CHECKPOINT).is_file():
        return
    _, values = load_arrays(path / CHECKPOINT)
    before, now = values["settings"], settings.to_dict()
    changed = [name for name in now if name not in ("threads", "epochs", "patience") and before.get(name) != now[name]]
    if changed:
        name = changed[0]
        raise Fm2Error(f"train: the run in {path} has {name} {before.get(name)}, not {now[name]}; resume with the same")


@contextlib.contextmanager
def _torch_threads(model: Model, settings: Settings) -> Iterator[None]:
    """Set torch's threads for a while: one where the products of a batch are small, for threads wait for each other."""
    before = torch.get_num_threads()
    work = settings.batch_size * sum(table.width for table in model.tables.values()) ** 2
    large = model.name in ("fwfm", "fvfm") and work > WORTH_THREADS
    torch.set_num_threads((settings.threads or _native.default_threads()) if large else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
