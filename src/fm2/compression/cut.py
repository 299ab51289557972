"""``fm2.cut``: a model of field matrices becomes an FM whose coordinates have signs, and is trained on as one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fm2.artifacts.model_file import MODEL
from fm2.artifacts.run_directory import check_second
from fm2.compression import spectrum
from fm2.compression.rank_chart import draw_ranks
from fm2.compression.retraining import TABLE, as_run, compare_all, logits_of, measure, settings_of
from fm2.compression.spectrum import Moments, Spectrum
from fm2.compression.weights import Weights, read_weights
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.evaluate import map_ids
from fm2.models import FM, FactorizationMachine
from fm2.models.registry import specs
from fm2.training.loop import TrainingProgress
from fm2.training.run import CHECKPOINT, Run
from fm2.training.train import train

# Features that shared field matrices have vectors of their own now, which soon fit too well: on Criteo's small log a
# tenth of the first rates lost 0.0001 to 0.0005 of the cuts' test AUC at ranks of 29 and 64; this lost 0.00002 at most.
RATE_SCALE = 0.02
PICTURE = Path(TABLE).with_suffix(".svg").name


def cut(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    rank: int = 16,
    training: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    tell: Callable[[Run], None] = lambda bare: None,
    moments: Moments | None = None,
    **settings: Any,
) -> Run:
    """Cut the spectrum of a trained FwFM, FvFM or FmFM where the training rows lie, and train on.

    What comes out is an FM of ``rank`` dimensions with signs. The settings are those of the first run with a fiftieth
    of its learning rates, changed as told; without ``training`` the cut is left as it is. ``tell`` is given it before
    that; it is there no longer afterwards. With ``resume`` a run that was interrupted goes on, and a cut that was left
    as it is stays. ``moments`` tell where the training rows lie, if that is known from another cut.
    """
    first = run if isinstance(run, Run) else Run.open(run)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    weights = _read_cuttable(first)
    check_second("cut", first.path, Path(out), resume, overwrite)
    if "dim" in settings:
        raise Fm2Error("cut: the dimension is the rank; leave dim out of the settings")
    known = _measure_moments(weights, first, dataset) if moments is None else moments
    small = machine_of(weights, spectrum.cut(weights, rank, known))
    if resume and not (training or overwrite):
        if (Path(out) / MODEL).is_file():
            return _kept(Run.open(out, first.threads), small)
        resume, overwrite = False, True  # it was interrupted before there was a model
    options: dict[str, Any] = {**settings_of(first, gently=True), "learning_rate_scale": RATE_SCALE, **settings}
    options |= {
        "linear": "features",
        "resume": resume,
        "overwrite": overwrite,
        "row_weights": row_weights,
        "callback": watch,
    }
    with as_run(small, first, Path(out).resolve().parent) as start:
        tell(Run.open(start, first.threads))
        return train(small.name, dataset, out, start=start, learn=training, **options)


def compare(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    ranks: Sequence[int],
    *,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Cut at several ranks, each into a run of its own in ``out``, and measure all of them.

    Every row but that of the first model has what became of the model, ``worst_error`` and ``mean_square_error``
    against the first one's logits, and in ``cut`` the same of it before it was trained on. The rows are written to
    ``table.json`` as well, and drawn in ``table.svg``. ``options`` are those of :func:`cut`, and ``begin``, which is
    told each rank before it is cut.
    """
    first = run if isinstance(run, Run) else Run.open(run)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    for rank in ranks:
        spectrum.check_rank(_read_cuttable(first), rank)

    yardstick = Yardstick(first, dataset)

    def make(rank: Any, place: Path, again: bool) -> dict[str, Any]:
        return cut_and_measure(yardstick, place, rank=rank, resume=again, overwrite=overwrite, **options)

    rows = compare_all("cut", "rank", yardstick.before, Path(out), sorted(set(ranks)), make, resume, overwrite)
    draw_ranks(Path(out) / PICTURE, rows, options.get("training", True))
    return rows


class Yardstick:
    """What cuts go and are measured by: where the rows lie, and the first model's logits on test, computed once."""

    def __init__(self, first: Run, dataset: Dataset) -> None:
        self.first, self.dataset = first, dataset

    @functools.cached_property
    def logits(self) -> NDArray[np.float32]:
        """The first model's logits."""
        return logits_of(self.first, self.dataset)

    @functools.cached_property
    def moments(self) -> Moments:
        """Where the training rows lie."""
        return _measure_moments(_read_cuttable(self.first), self.first, self.dataset)

    def before(self) -> dict[str, Any]:
        """Give the first model's size and quality."""
        return {"run": str(self.first.path), **measure(self.first, self.dataset, self.logits)}

    def measure(self, small: Run) -> dict[str, Any]:
        """Give a model's size and quality, and how far its logits are from the first model's."""
        logits = logits_of(small, self.dataset)
        apart = np.float64(logits) - self.logits
        errors = {"worst_error": float(np.abs(apart).max()), "mean_square_error": float(np.mean(apart**2))}
        return {**measure(small, self.dataset, logits), **errors}


def cut_and_measure(
    yardstick: Yardstick,
    out: str | Path,
    rank: int,
    training: bool = True,
    begin: Callable[[int], None] = lambda rank: None,
    tell: Callable[[Run], None] = lambda bare: None,
    **options: Any,
) -> dict[str, Any]:
    """Cut at a rank, and give how good the model is, and in ``cut`` how good it was before it was trained on.

    ``begin`` is told the rank at first.
    """
    bare: dict[str, Any] = {}
    spectrum.check_rank(_read_cuttable(yardstick.first), rank)
    begin(rank)

    def hear(start: Run) -> None:
        if training:
            bare.update(yardstick.measure(start))
        tell(start)

    options |= {"training": training, "tell": hear, "moments": yardstick.moments}
    small = cut(yardstick.first, yardstick.dataset, out, rank=rank, **options)
    found = yardstick.measure(small)
    return {**found, "cut": bare or found}


def machine_of(weights: Weights, found: Spectrum) -> FactorizationMachine:
    """Give the FM that a cut spectrum is."""
    signs = found.signs.astype(int).tolist()
    small = FM(weights.sizes, dims=len(signs), linear="features", signs=signs, seed=None)
    assert small.linear is not None
    with torch.no_grad():
        small.bias.fill_(weights.bias + found.constant)
        for field in range(len(weights.sizes)):
            vectors, linear = found.features(weights, field, slice(None))
            small.embedding.rows(field).copy_(torch.from_numpy(vectors))
            small.linear.rows(field).copy_(torch.from_numpy(linear[:, None]))
    return small


def _kept(run: Run, small: FactorizationMachine) -> Run:
    """Give a run that was made without training, if it is this cut."""
    there = run.model
    same = isinstance(there, FactorizationMachine) and there.signs == small.signs
    if not same or (run.path / CHECKPOINT).exists() or not np.isclose(there.bias.item(), small.bias.item(), atol=1e-4):
        raise Fm2Error(f"cut: {run.path} is not this cut without training; --overwrite replaces it")
    return run


def _read_cuttable(run: Run) -> Weights:
    if not run.model.spec.learns_field_matrices:
        cuttable = ", ".join(spec.name for spec in specs() if spec.learns_field_matrices)
        raise Fm2Error(f"cut: the model of {run.path} is {run.model.name}; {cuttable} have a spectrum to cut")
    return read_weights(run.path)


def _measure_moments(weights: Weights, run: Run, dataset: Dataset) -> Moments:
    """Measure where the training rows lie; they may be another day's."""
    ids = map_ids(spectrum.some_rows(dataset.train.ids), run.id_map(dataset))
    return spectrum.measure_moments(weights, ids)
