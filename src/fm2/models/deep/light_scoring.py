"""Scoring with a pruned DeepLight: products with sparse matrices, in which zeros cost nothing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fm2.models.base import GatheredModel
from fm2.models.deep.layers import BatchNorm, Linear

if TYPE_CHECKING:
    from fm2.models.deep.deeplight import DeepLight

MIN_SPARSITY = 0.87  # from here on, sparse products are faster than dense ones, for one row and for many
BLOCK_ROWS = 128  # scored at once, so that a transposed block stays in the cache


class LightScoring(GatheredModel):
    """Scores rows like a trained :class:`DeepLight` whose weights are mostly zero.

    Rows are the columns of the matrices, so that a nonzero weight multiplies many adjacent numbers. Batch
    normalization is folded into the weights of its layer.
    """

    def __init__(self, model: DeepLight) -> None:
        super().__init__(model.config)
        self.embedding, self.linear, self.bias = model.embedding, model.linear, model.bias
        self._model = [model]  # a list, so that the model is not registered as a submodule
        self._layers = [self._layer(model, index) for index in range(len(model.mlp.layers))]
        self._pairs = _sparse(model.interaction.matrices()[0].detach().triu())

    @staticmethod
    def _layer(model: DeepLight, index: int) -> tuple[Tensor, Tensor]:
        """Return a layer's matrix and its bias as a column."""
        layer = cast("Linear", model.mlp.layers[index])
        if model.mlp.norms is None:
            return _sparse(layer.weight.detach()), layer.bias.detach()[:, None]
        norm = cast("BatchNorm", model.mlp.norms[index])
        scale = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        bias = norm.bias.detach() - norm.running_mean * scale
        return _sparse(layer.weight.detach() * scale[:, None]), bias[:, None]

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        """Return the logits [rows] from the gathered embeddings [rows, D] and linear weights [rows, fields]."""
        assert embedding is not None
        blocks = embedding.split(BLOCK_ROWS)  # type: ignore[no-untyped-call]
        logits = torch.cat([self._score_columns(block.T.contiguous()) for block in blocks]) + self.bias
        return logits if linear is None else logits + linear.sum(1)

    def _score_columns(self, v: Tensor) -> Tensor:
        """Return the logits [rows] without bias and linear part of transposed embeddings [D, rows]."""
        mlp = self._model[0].mlp
        x = v
        for weight, bias in self._layers:
            x = mlp.activation((weight @ x).add_(bias))
        by_field = v.view(len(self.field_sizes), -1)
        pairs = (self._pairs @ by_field).mul_(by_field).view_as(v).sum(0)
        assert mlp.last is not None
        return torch.addmm(mlp.last.bias, mlp.last.weight, x)[0] + pairs

    def flops(self) -> int:
        """Return the number of operations per prediction."""
        return self._model[0].flops()


def _sparse(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return matrix.to_sparse_csr()
