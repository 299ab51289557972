"""``fm2.cut``: cut the spectrum of a model's field matrices, which makes it an FM with signs, and train it further."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fm2.artifacts.model_file import MODEL
from fm2.artifacts.run_directory import CHECKPOINT, check_run_output
from fm2.artifacts.settings import is_used
from fm2.compression import spectrum
from fm2.compression.moments import Moments
from fm2.compression.retraining import check_matrices, measure, retraining_settings, split_logits, sweep, temporary_run
from fm2.compression.spectrum import Spectrum
from fm2.compression.weights import Weights, read_weights
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.evaluation.id_mapping import map_ids
from fm2.files import write_text
from fm2.models import FM, FactorizationMachine
from fm2.remote.paths import writes
from fm2.svg import COLORS, Axis, Plot, Point, svg, text, ticks
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train
from fm2.training.without_effect import chosen_settings

# Features that shared field matrices now have vectors of their own, which overfit soon: on Criteo's small log, a tenth
# of the first rates lost 0.0001 to 0.0005 of test AUC at ranks 29 and 64; this scale lost 0.00002 at most.
RATE_SCALE = 0.02
CHART = "table.svg"
WIDTH, PANEL, LEFT, RIGHT, TOP, BETWEEN, BOTTOM = 640, 200, 80, 24, 64, 56, 48  # of the chart

Series = dict[str, list[Point]]


@writes("out")
def cut(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    rank: int = 16,
    training: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    watch: Callable[[TrainingProgress], None] | None = None,
    progress: bool | None = None,
    on_cut: Callable[[Run], None] = lambda untrained: None,
    moments: Moments | None = None,
    **settings: Any,
) -> Run:
    """Cut the spectrum of a trained FwFM, FvFM or FmFM at a rank, and train the result further.

    The result is an FM of ``rank`` dimensions with signs, which approximates the model best where the training rows
    are. The settings are those of ``run`` with a fiftieth of its learning rates; ``settings`` override them.
    ``training=False`` skips the training. ``on_cut`` is called with the untrained model, which is deleted afterwards.
    ``moments`` of the training rows can be passed if they are known from another cut. The remaining arguments are those
    of :func:`fm2.train`.
    """
    first = Run.of(run)
    dataset = Dataset.of(data)
    check_matrices("cut", first)
    check_run_output("cut", Path(out), resume, overwrite, source=first.path)
    if "dim" in settings:
        raise Fm2Error("cut: the rank is the dimension; remove dim from the settings")
    weights = read_weights(first.path)
    small = build_fm(weights, spectrum.cut(weights, rank, moments or _measure_moments(weights, first, dataset)))
    if resume and not training:
        if (Path(out) / MODEL).is_file():
            return _check_untrained(Run.open(out, first.threads), small)
        resume, overwrite = False, True  # interrupted before the model was written
    kept = {name: value for name, value in retraining_settings(first).items() if is_used(small.name, name)}
    options = {**kept, "learning_rate_scale": RATE_SCALE, **settings, "linear": "features"}
    options |= {"learn": training, "resume": resume, "overwrite": overwrite, "callback": watch, "progress": progress}
    with temporary_run(small, first, Path(out)) as start:
        on_cut(Run.open(start, first.threads))
        with chosen_settings(settings):
            return train(small.name, dataset, out, start=start, **options)


@writes("out")
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
    """Cut at several ranks, each to its own run in ``out``, and measure all models.

    The rows are those of :func:`cut_and_measure`, after one for the first model. They are also written to
    ``table.json`` and drawn in ``table.svg``. ``options`` are those of :func:`cut_and_measure`.
    """
    baseline = Baseline(Run.of(run), Dataset.of(data))
    for rank in ranks:
        spectrum.check_rank(baseline.weights, rank)

    def make_row(rank: Any, path: Path, again: bool) -> dict[str, Any]:
        return cut_and_measure(baseline, path, rank=rank, resume=again, overwrite=overwrite, **options)

    rows = sweep("cut", "rank", sorted(set(ranks)), Path(out), baseline.row, make_row, resume, overwrite)
    draw_ranks(Path(out) / CHART, rows, options.get("training", True))
    return rows


class Baseline:
    """A model that is cut, with what all its cuts share, computed once: its logits, and the moments of the rows."""

    def __init__(self, run: Run, dataset: Dataset) -> None:
        check_matrices("cut", run)
        self.run, self.dataset = run, dataset
        self.weights = read_weights(run.path)

    @functools.cached_property
    def logits(self) -> NDArray[np.float32]:
        """The model's logits on the measured split."""
        return split_logits(self.run, self.dataset)

    @functools.cached_property
    def moments(self) -> Moments:
        """The moments of the training rows."""
        return _measure_moments(self.weights, self.run, self.dataset)

    def row(self) -> dict[str, Any]:
        """Return the model's size and quality."""
        return {"run": str(self.run.path), **measure(self.run, self.dataset, self.logits)}

    def measure(self, small: Run) -> dict[str, Any]:
        """Return the size and the quality of a cut, and the errors of its logits."""
        logits = split_logits(small, self.dataset)
        error = np.float64(logits) - self.logits
        errors = {"worst_error": float(np.abs(error).max()), "mean_square_error": float(np.mean(error**2))}
        return {**measure(small, self.dataset, logits), **errors}


def cut_and_measure(
    baseline: Baseline,
    out: str | Path,
    rank: int,
    training: bool = True,
    on_rank: Callable[[int], None] = lambda rank: None,
    on_cut: Callable[[Run], None] = lambda untrained: None,
    **options: Any,
) -> dict[str, Any]:
    """Cut at a rank, and return the size and the quality of the result.

    ``worst_error`` and ``mean_square_error`` compare its logits with the first model's. ``cut`` has the same figures
    before training. ``on_rank`` is called with the rank at the beginning; ``options`` are those of :func:`cut`.
    """
    spectrum.check_rank(baseline.weights, rank)
    on_rank(rank)
    untrained: dict[str, Any] = {}

    def measure_cut(start: Run) -> None:
        if training:
            untrained.update(baseline.measure(start))
        on_cut(start)

    options |= {"training": training, "on_cut": measure_cut, "moments": baseline.moments}
    figures = baseline.measure(cut(baseline.run, baseline.dataset, out, rank=rank, **options))
    return {**figures, "cut": untrained or figures}


def build_fm(weights: Weights, cut_spectrum: Spectrum) -> FactorizationMachine:
    """Build the FM with signs that a cut spectrum is equivalent to."""
    signs = cut_spectrum.signs.astype(int).tolist()
    small = FM(weights.sizes, dims=len(signs), linear="features", signs=signs, seed=None)
    assert small.linear is not None
    with torch.no_grad():
        small.bias.fill_(weights.bias + cut_spectrum.constant)
        for field in range(len(weights.sizes)):
            vectors, linear = cut_spectrum.features(weights, field, slice(None))
            small.embedding.rows(field).copy_(torch.from_numpy(vectors))
            small.linear.rows(field).copy_(torch.from_numpy(linear[:, None]))
    return small


def _check_untrained(run: Run, small: FactorizationMachine) -> Run:
    """Return a run that was made without training; raise an error if it is not this cut."""
    model = run.model
    same = isinstance(model, FactorizationMachine) and model.signs == small.signs
    same = same and math.isclose(model.bias.item(), small.bias.item(), rel_tol=1e-5, abs_tol=1e-4)
    if not same or (run.path / CHECKPOINT).exists():
        raise Fm2Error(f"cut: {run.path} is not this cut without training; use overwrite=True to replace it")
    return run


def _measure_moments(weights: Weights, run: Run, dataset: Dataset) -> Moments:
    rows, row_weights = spectrum.sample_rows(dataset.train)
    return spectrum.measure_moments(weights, map_ids(rows, run.id_map(dataset, "cut")), row_weights)


def draw_ranks(path: Path, rows: Sequence[dict[str, Any]], trained: bool = True) -> None:
    """Draw AUC lost and worst logit error against the rank: as cut and, if they were ``trained``, after training."""
    first, ranks = rows[0], [row["rank"] for row in rows[1:]]
    figures = {"as cut": [row["cut"] for row in rows[1:]]} | ({"trained": list(rows[1:])} if trained else {})

    def series(value: Callable[[dict[str, Any]], float]) -> Series:
        return {name: list(zip(ranks, map(value, models), strict=True)) for name, models in figures.items()}

    height = TOP + 2 * PANEL + BETWEEN + BOTTOM
    title = f"Cut spectrum, on {first['split']} (AUC before: {first['auc']:.5f})"
    parts = [
        *_legend(title, list(figures)),
        *_panel(TOP, "AUC lost", series(lambda row: first["auc"] - row["auc"])),
        *_panel(TOP + PANEL + BETWEEN, "worst logit error", series(lambda row: row["worst_error"]), below="rank"),
    ]
    write_text(path, svg(WIDTH, height, title, parts, background=True))


def _panel(top: float, title: str, series: Series, below: str = "") -> list[str]:
    """Draw axes and lines; the rank axis is logarithmic, and the other axis includes 0."""
    points = [point for line in series.values() for point in line]
    across = Axis(sorted({x for x, _ in points}), LEFT + 12, WIDTH - RIGHT - 12, logarithmic=True)
    up = Axis(ticks(min(0.0, *(y for _, y in points)), max(0.0, *(y for _, y in points))), top + PANEL, top)
    plot = Plot(across, up, (LEFT, WIDTH - RIGHT))
    parts = plot.grid(title, below)
    for color, line in zip(COLORS, series.values(), strict=False):
        parts += [plot.line(line, color), *(plot.dot(point, color) for point in line)]
    return parts


def _legend(title: str, names: Sequence[str]) -> list[str]:
    parts, x = [text(LEFT, 24, title, bold=True)], WIDTH - RIGHT - 190
    for color, name in zip(COLORS, names, strict=False):
        parts.append(f'<circle cx="{x}" cy="{TOP - 14}" r="4" fill="{color}"/>')
        parts.append(text(x + 10, TOP - 10, name))
        x += 95
    return parts
