"""A trained FmFM with embeddings of fewer dimensions: the same model, seen from its principal components."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from fm2.compression.dimensions import Basis, Matrix
from fm2.models import FactorizationMachine, build
from fm2.training.backend import to_numpy


def project(model: FactorizationMachine, bases: Sequence[Basis]) -> FactorizationMachine:
    """Give the model whose embeddings are the coordinates c of v ≈ mean + P c.

    The means are no coordinates, so they go where they belong. With v = m + P c the form is

        b + wᵀ v + 1/2 vᵀ S v  =  (b + wᵀ m + 1/2 mᵀ S m) + (w + S m)ᵀ P c + 1/2 cᵀ (Pᵀ S P) c

    whose first part is the bias and whose second is linear. A basis of E[v vᵀ] would need no means, but would spend on
    them one of the dimensions that were chosen for the variance. What P cannot hold of the linear part, weights per
    feature can, where the model has them: they take the whole of (w + S m)ᵀ (v - m).
    """
    small = build({**model.config, "dims": [basis.dim for basis in bases]}, seed=None)
    assert isinstance(small, FactorizationMachine)
    ends = np.cumsum(small.embedding.dims)
    mean, P = np.concatenate([basis.mean for basis in bases]), _block_diagonal([basis.axes for basis in bases])
    S, w = _form(model)
    slope = w + S @ mean
    vector = P.T @ slope if small.field_linear is not None else np.zeros(P.shape[1])
    form = np.split(P.T @ S @ P, ends[:-1])
    with torch.no_grad():
        small.bias.fill_(model.bias.item() + w @ mean + mean @ S @ mean / 2)
        for i, j in combinations(range(len(bases)), 2):
            small.interaction.field_matrix(i, j).copy_(_tensor(np.split(form[i], ends[:-1], axis=1)[j]))
        if small.field_linear is not None:
            small.field_linear.copy_(_tensor(vector))
        slopes, vectors = np.split(slope, model.embedding.starts[1:]), np.split(vector, ends[:-1])
        for field, basis in enumerate(bases):
            centered = to_numpy(model.embedding.rows(field)) - basis.mean
            coordinates = centered @ basis.onto
            small.embedding.rows(field).copy_(_tensor(coordinates))
            if small.linear is not None and model.linear is not None:
                more = centered @ slopes[field] - coordinates @ vectors[field]
                small.linear.rows(field).copy_(model.linear.rows(field) + _tensor(more[:, None]))
    return small


def _form(model: FactorizationMachine) -> tuple[Matrix, Matrix]:
    """Give the block matrix S and the vectors w_F, zero where there are none."""
    starts, width = model.embedding.starts, model.embedding.width
    S = np.zeros((width, width))
    for i, j in combinations(range(len(starts)), 2):
        matrix = to_numpy(model.field_matrix(i, j))
        S[starts[i] :, starts[j] :][: matrix.shape[0], : matrix.shape[1]] = matrix
    w = np.zeros(width) if model.field_linear is None else to_numpy(model.field_linear).astype(np.float64)
    return S + S.T, w


def _block_diagonal(blocks: Sequence[Matrix]) -> Matrix:
    whole = np.zeros((sum(len(block) for block in blocks), sum(block.shape[1] for block in blocks)))
    row = column = 0
    for block in blocks:
        whole[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return whole


def _tensor(values: Matrix) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
