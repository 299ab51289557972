"""``fm2.shrink``: give each field of an FmFM only as many dimensions as it needs (section 4.1 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fm2.artifacts.run_directory import check_run_output
from fm2.compression.dimensions import Basis, Weighting, find_bases
from fm2.compression.moments import Matrix, field_embeddings, field_matrix
from fm2.compression.retraining import (
    check_matrices,
    find_occurrences,
    measure,
    retraining_settings,
    sweep,
    temporary_run,
)
from fm2.compression.spectrum import assemble_blocks, block_diagonal
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine, build
from fm2.remote.paths import writes
from fm2.training.backend import to_numpy
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train
from fm2.training.without_effect import chosen_settings


@writes("out")
def shrink(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    variance: float = 0.95,
    weighting: Weighting = "counts",
    warm: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    watch: Callable[[TrainingProgress], None] | None = None,
    progress: bool | None = None,
    on_bases: Callable[[list[Basis]], None] = lambda bases: None,
    **settings: Any,
) -> Run:
    """Train an FmFM again, with as many dimensions per field as keep a share of its embeddings' variance.

    ``weighting`` says how features count: by their frequency (``"counts"``), all equally if they occur
    (``"features"``), by their frequency and their effect on the logit through the field matrices
    (``"interactions"``), or as in the paper's code (``"authors"``): all equally, without the unknown one, and with at
    least two dimensions per field. Training starts from scratch, as in section 4.1 of the paper. With ``warm`` it
    starts from the projected model, with a tenth of the learning rates. The settings are those of ``run``; ``settings``
    override them. ``on_bases`` is called with the bases before training. The remaining arguments are those of
    :func:`fm2.train`.
    """
    first = Run.of(run)
    dataset = Dataset.of(data)
    model = _check_shrinkable(first, [variance], warm)
    check_run_output("shrink", Path(out), resume, overwrite, source=first.path)
    if "dim" in settings:
        raise Fm2Error("shrink: it chooses the dimensions itself; remove dim from the settings")
    bases = find_bases(model, find_occurrences(first, dataset, "shrink"), weighting, variance)
    on_bases(bases)
    # Simpler matrices need fields with the same dimension, and become full ones in other coordinates.
    options = {**retraining_settings(first, low_rate=warm), "matrices": "full", **settings}
    options |= {"resume": resume, "overwrite": overwrite, "callback": watch, "progress": progress}
    with chosen_settings(settings):
        if not warm:
            return train(model.name, dataset, out, dim=[basis.dim for basis in bases], **options)
        with temporary_run(project(model, bases), first, Path(out)) as start:
            return train(model.name, dataset, out, start=start, **options)


@writes("out")
def compare(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    variances: Sequence[float],
    *,
    warm: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Shrink with several shares of variance, each to its own run in ``out``, and measure all models.

    This makes the paper's table 8: the first model and each smaller one, with average dimension, operations and
    quality. The rows are also written to ``table.json``. ``options`` are those of :func:`shrink`.
    """
    first = Run.of(run)
    dataset = Dataset.of(data)
    _check_shrinkable(first, variances, warm)

    def make_row(variance: Any, path: Path, again: bool) -> dict[str, Any]:
        small = shrink(first, dataset, path, variance=variance, warm=warm, resume=again, overwrite=overwrite, **options)
        return measure(small, dataset)

    def first_row() -> dict[str, Any]:
        return {"run": str(first.path), **measure(first, dataset)}

    return sweep("shrink", "variance", variances, Path(out), first_row, make_row, resume, overwrite)


def _check_shrinkable(run: Run, variances: Sequence[float], warm: bool) -> FactorizationMachine:
    """Return the model of a run; raise an error if it cannot be shrunk, or a variance is invalid."""
    for variance in variances:
        if not 0 < variance <= 1:
            raise Fm2Error(f"shrink: variance must be above 0 and at most 1, got {variance}")
    model = check_matrices("shrink", run, full=True)
    if model.pruned and not warm:
        raise Fm2Error(
            f"shrink: the model in {run.path} is pruned, and training from scratch would undo that; use warm=True"
        )
    return model


def project(model: FactorizationMachine, bases: Sequence[Basis]) -> FactorizationMachine:
    """Return the model whose embeddings are the coordinates c of v ≈ m + P c.

    The means m become part of the bias and the linear terms. With v = m + P c, the logit is

        b + wᵀ v + 1/2 vᵀ S v  =  (b + wᵀ m + 1/2 mᵀ S m) + (w + S m)ᵀ P c + 1/2 cᵀ (Pᵀ S P) c

    A basis of E[v vᵀ] would need no means, but would spend one of the dimensions on them. If the model has a weight per
    feature, that weight takes the part of (w + S m)ᵀ (v - m) that P c cannot express.
    """
    small = build({**model.config, "dims": [basis.dim for basis in bases], "matrices": "full"}, seed=None)
    assert isinstance(small, FactorizationMachine)
    mean = np.concatenate([basis.mean for basis in bases])
    P = block_diagonal([basis.axes for basis in bases])
    S = assemble_blocks(model.embedding.dims, lambda i, j: field_matrix(model, i, j))
    w = np.zeros(len(mean)) if model.field_linear is None else to_numpy(model.field_linear).astype(np.float64)
    slope = w + S @ mean
    vector = P.T @ slope if small.field_linear is not None else np.zeros(P.shape[1])
    ends = np.cumsum(small.embedding.dims)[:-1]
    blocks = [np.split(rows, ends, axis=1) for rows in np.split(P.T @ S @ P, ends)]
    with torch.no_grad():
        small.bias.fill_(model.bias.item() + w @ mean + mean @ S @ mean / 2)
        for i, j in combinations(range(len(bases)), 2):
            small.interaction.field_matrix(i, j).copy_(_tensor(blocks[i][j]))
        if small.field_linear is not None:
            small.field_linear.copy_(_tensor(vector))
        slopes, vectors = np.split(slope, model.embedding.starts[1:]), np.split(vector, ends)
        for field, table in enumerate(field_embeddings(model)):
            centered = table - bases[field].mean
            coordinates = centered @ bases[field].onto
            small.embedding.rows(field).copy_(_tensor(coordinates))
            if small.linear is not None and model.linear is not None:
                remainder = centered @ slopes[field] - coordinates @ vectors[field]
                small.linear.rows(field).copy_(model.linear.rows(field) + _tensor(remainder[:, None]))
    return small


def _tensor(values: Matrix) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
