"""``fm2.prune``: pairs of fields whose interaction hardly matters are left out, and the others trained on.

What a pair adds to a logit, v_iᵀ M v_j, is a function of the one feature, plus one of the other, plus the interaction
proper: (v_i - m_i)ᵀ M (v_j - m_j), with the means m. The linear part and the bias can hold the first two, so only the
last is lost with the pair, and its size, where the data is, is the pair's strength.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from fm2.artifacts.run_directory import check_second
from fm2.compression.dimensions import Matrix, embeddings_of, moments
from fm2.compression.retraining import as_run, counts_of, settings_of
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine, build
from fm2.models.registry import specs
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train

Pair = tuple[int, int]


def prune(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    keep: float = 0.3,
    resume: bool = False,
    overwrite: bool = False,
    row_weights: ArrayLike | str | Path | None = None,
    watch: Callable[[TrainingProgress], None] = lambda report: None,
    tell: Callable[[dict[Pair, float], list[Pair]], None] = lambda strengths, pruned: None,
    **settings: Any,
) -> Run:
    """Keep the strongest share of a trained model's pairs of fields, and train on without the others.

    The settings are those of the first run with a tenth of its learning rates, changed as told. ``tell`` is told the
    strengths, and the pairs that are pruned, before it begins.
    """
    first = run if isinstance(run, Run) else Run.open(run)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    if not isinstance(first.model, FactorizationMachine) or not first.model.spec.learns_field_matrices:
        prunable = ", ".join(spec.name for spec in specs() if spec.learns_field_matrices)
        raise Fm2Error(f"prune: the model of {first.path} is {first.model.name}; {prunable} have pairs to prune")
    check_second("prune", first.path, Path(out), resume, overwrite)
    counts = counts_of(first, dataset)
    found = strengths(first.model, counts)
    pruned = weakest(found, keep)
    tell(found, pruned)
    options: dict[str, Any] = {**settings_of(first, gently=True), **settings}
    options |= {"resume": resume, "overwrite": overwrite, "row_weights": row_weights, "callback": watch}
    with as_run(without(first.model, pruned, counts), first, Path(out).resolve().parent) as start:
        return train(first.model.name, dataset, out, start=start, **options)


def strengths(model: FactorizationMachine, counts: Sequence[Matrix]) -> dict[Pair, float]:
    """Give the strength of every pair of fields: the standard deviation of its interaction proper, in logits.

    The features come by ``counts``, and fields as if they had nothing to do with each other. With the covariances C of
    the embeddings, it is the root of trace(Mᵀ C_i M C_j).
    """
    C = [moments(table, count)[1] for table, count in zip(embeddings_of(model), counts, strict=True)]
    found = {}
    for i, j in combinations(range(len(C)), 2):
        M = _matrix(model, i, j)
        found[i, j] = float(np.sqrt(max(np.sum((C[i] @ M) * (M @ C[j])), 0.0)))
    return found


def weakest(found: dict[Pair, float], keep: float) -> list[Pair]:
    """Give the pairs that are left out if the strongest share is kept: one at the least, and none without strength.

    >>> weakest({(0, 1): 0.5, (0, 2): 0.1, (1, 2): 0.2}, keep=0.3)
    [(0, 2), (1, 2)]
    """
    if not 0 < keep <= 1:
        raise Fm2Error(f"prune: the share of pairs to keep is {keep}; it is a number above 0, up to 1")
    order = sorted(found, key=lambda pair: -found[pair])
    kept = {pair for pair in order[: max(round(keep * len(order)), 1)] if found[pair]}
    return [pair for pair in found if pair not in kept]


def without(model: FactorizationMachine, pruned: Collection[Pair], counts: Sequence[Matrix]) -> FactorizationMachine:
    """Give the model without some of its pairs; what they add as functions of one feature is in the linear part."""
    small = build({**model.config, "pruned": [list(pair) for pair in pruned]}, seed=None)
    assert isinstance(small, FactorizationMachine)
    small.load_state_dict(model.state_dict())
    small.interaction.prune(list(pruned))
    means = [moments(table, count)[0] for table, count in zip(embeddings_of(model), counts, strict=True)]
    slopes, constant = [np.zeros_like(mean) for mean in means], 0.0
    for i, j in pruned:
        M = _matrix(model, i, j)
        slopes[i] += M @ means[j]
        slopes[j] += M.T @ means[i]
        constant -= float(means[i] @ M @ means[j])
    with torch.no_grad():
        small.bias.add_(constant)
        _add_slopes(small, slopes)
    return small


def _add_slopes(model: FactorizationMachine, slopes: Sequence[Matrix]) -> None:
    """Add to the linear part what rises with each field's embedding by its slope."""
    if model.field_linear is not None:
        model.field_linear.add_(torch.from_numpy(np.concatenate(slopes).astype(np.float32)))
    elif model.linear is not None:
        for field, slope in enumerate(slopes):
            more = model.embedding.rows(field) @ torch.from_numpy(slope.astype(np.float32))
            model.linear.rows(field).add_(more[:, None])


def _matrix(model: FactorizationMachine, i: int, j: int) -> Matrix:
    matrix: Matrix = model.field_matrix(i, j).double().cpu().numpy()
    return matrix
