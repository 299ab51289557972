"""``fm2.prune``: remove the pairs of fields whose interaction matters least, and train the others further.

The term of a pair, v_iᵀ M v_j, is a function of one field, plus a function of the other, plus the interaction proper,
(v_i - m_i)ᵀ M (v_j - m_j), where m are the means. The bias and the linear terms can take over the first two. Only the
interaction proper is lost with the pair, and its standard deviation over the data is the strength of the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fm2.artifacts.run_directory import check_run_output
from fm2.compression.moments import Occurrences, field_matrix, field_moments
from fm2.compression.retraining import check_matrices, find_occurrences, retraining_settings, temporary_run
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.models import FactorizationMachine, build
from fm2.remote.paths import writes
from fm2.training.loop import TrainingProgress
from fm2.training.run import Run
from fm2.training.train import train
from fm2.training.without_effect import chosen_settings

Pair = tuple[int, int]


@writes("out")
def prune(
    run: Run | str | Path,
    data: Dataset | str | Path,
    out: str | Path,
    *,
    keep: float = 0.3,
    resume: bool = False,
    overwrite: bool = False,
    watch: Callable[[TrainingProgress], None] | None = None,
    progress: bool | None = None,
    on_pairs: Callable[[dict[Pair, float], list[Pair]], None] = lambda strengths, pruned: None,
    **settings: Any,
) -> Run:
    """Keep the strongest share of a model's pairs of fields, and train the model further without the others.

    ``run`` is a trained FwFM, FvFM or FmFM. The settings are those of that run with a tenth of its learning rates;
    ``settings`` override them. ``on_pairs`` is called before training with the strength of every pair, and with the
    pruned pairs. The remaining arguments are those of :func:`fm2.train`.
    """
    first = Run.of(run)
    dataset = Dataset.of(data)
    model = check_matrices("prune", first)
    check_run_output("prune", Path(out), resume, overwrite, source=first.path)
    occurrences = find_occurrences(first, dataset, "prune")
    strengths = pair_strengths(model, occurrences)
    pruned = weakest_pairs(strengths, keep)
    on_pairs(strengths, pruned)
    options = retraining_settings(first) | settings
    options |= {"resume": resume, "overwrite": overwrite, "callback": watch, "progress": progress}
    with temporary_run(without_pairs(model, pruned, occurrences), first, Path(out)) as start, chosen_settings(settings):
        return train(model.name, dataset, out, start=start, **options)


def pair_strengths(model: FactorizationMachine, occurrences: Sequence[Occurrences]) -> dict[Pair, float]:
    """Return the strength of every pair of fields: the standard deviation of its interaction proper, in logits.

    Features occur as often as ``occurrences`` says, and fields are taken to be independent. With the covariances C of
    the fields' vectors, the strength is the square root of trace(Mᵀ C_i M C_j).
    """
    C = [moments.covariance for moments in field_moments(model, occurrences)]
    strengths = {}
    for i, j in combinations(range(len(C)), 2):
        M = field_matrix(model, i, j)
        strengths[i, j] = float(np.sqrt(max(np.sum((C[i] @ M) * (M @ C[j])), 0.0)))
    return strengths


def weakest_pairs(strengths: dict[Pair, float], keep: float) -> list[Pair]:
    """Return the pairs to prune if the strongest share is kept: at least one pair, but none of strength 0."""
    if not 0 < keep <= 1:
        raise Fm2Error(f"prune: keep must be above 0 and at most 1, got {keep}")
    order = sorted(strengths, key=lambda pair: -strengths[pair])
    kept = {pair for pair in order[: max(round(keep * len(order)), 1)] if strengths[pair]}
    return [pair for pair in strengths if pair not in kept]


def without_pairs(
    model: FactorizationMachine, pruned: Collection[Pair], occurrences: Sequence[Occurrences]
) -> FactorizationMachine:
    """Return the model without some pairs; bias and linear terms take over what is a function of one field."""
    small = build({**model.config, "pruned": [list(pair) for pair in pruned]}, seed=None)
    assert isinstance(small, FactorizationMachine)
    small.load_state_dict(model.state_dict())
    small.interaction.prune(list(pruned))
    means = [moments.mean for moments in field_moments(model, occurrences)]
    slopes = [np.zeros_like(mean) for mean in means]
    constant = 0.0
    for i, j in pruned:
        M = field_matrix(model, i, j)
        slopes[i] += M @ means[j]
        slopes[j] += M.T @ means[i]
        constant -= float(means[i] @ M @ means[j])
    with torch.no_grad():
        small.bias.add_(constant)
        if small.field_linear is not None:
            small.field_linear.add_(torch.from_numpy(np.concatenate(slopes).astype(np.float32)))
        elif small.linear is not None:
            for field, slope in enumerate(slopes):
                added = small.embedding.rows(field) @ torch.from_numpy(slope.astype(np.float32))
                small.linear.rows(field).add_(added[:, None])
    return small
