"""Project the embeddings of an FmFM onto fewer dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch

from fm2.compression.dimensions import Basis
from fm2.compression.moments import Matrix, field_embeddings, field_matrix
from fm2.compression.spectrum import assemble_blocks
from fm2.models import FactorizationMachine, build
from fm2.training.backend import to_numpy


def project(model: FactorizationMachine, bases: Sequence[Basis]) -> FactorizationMachine:
    """Return the model whose embeddings are the coordinates c of v ≈ m + P c.

    The means m become part of the bias and the linear terms. With v = m + P c, the logit is

        b + wᵀ v + 1/2 vᵀ S v  =  (b + wᵀ m + 1/2 mᵀ S m) + (w + S m)ᵀ P c + 1/2 cᵀ (Pᵀ S P) c

    A basis of E[v vᵀ] would need no means, but would spend one of the dimensions on them. If the model has a weight per
    feature, that weight takes the part of (w + S m)ᵀ (v - m) that P c cannot express.
    """
    small = build({**model.config, "dims": [basis.dim for basis in bases]}, seed=None)
    assert isinstance(small, FactorizationMachine)
    mean = np.concatenate([basis.mean for basis in bases])
    P = _block_diagonal([basis.axes for basis in bases])
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


def _block_diagonal(blocks: Sequence[Matrix]) -> Matrix:
    matrix = np.zeros((sum(len(block) for block in blocks), sum(block.shape[1] for block in blocks)))
    row = column = 0
    for block in blocks:
        matrix[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return matrix


def _tensor(values: Matrix) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
