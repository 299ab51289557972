"""DeepLight at work: products with sparse matrices, whose zeros cost nothing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fm2.models.base import GatheredModel
from fm2.models.deep.layers import BatchNorm, Linear

if TYPE_CHECKING:
    from fm2.models.deep.deeplight import DeepLight

PAYS = 0.87  # the share of zeros from which sparse products are quicker than dense ones, for one row or many
ROWS = 128  # that are scored at once: a block of a batch, by columns, that stays in the processor's cache


class LightScoring(GatheredModel):
    """Scores as a trained :class:`DeepLight` does, whose weights are mostly zero.

    Rows stand side by side as columns, so that one weight that is not zero multiplies many numbers in a row. Batch
    normalizations are part of their layers' weights.
    """

    def __init__(self, model: DeepLight) -> None:
        super().__init__(model.config)
        self.embedding, self.linear, self.bias = model.embedding, model.linear, model.bias
        self._model = [model]  # in a list, for it is no part of this one
        self._layers = [self._layer(model, at) for at in range(len(model.mlp.layers))]
        self._pairs = _sparse(model.interaction.matrices()[0].detach().triu())

    @staticmethod
    def _layer(model: DeepLight, at: int) -> tuple[Tensor, Tensor]:
        """Give a layer's matrix and, as a column, its bias."""
        layer = cast("Linear", model.mlp.layers[at])
        if model.mlp.norms is None:
            return _sparse(layer.weight.detach()), layer.bias.detach()[:, None]
        norm = cast("BatchNorm", model.mlp.norms[at])
        scale = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        bias = norm.bias.detach() - norm.running_mean * scale
        return _sparse(layer.weight.detach() * scale[:, None]), bias[:, None]

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        assert embedding is not None
        parts = [self._columns(block.T.contiguous()) for block in embedding.split(ROWS)]  # type: ignore[no-untyped-call]
        logits = torch.cat(parts) + self.bias
        return logits if linear is None else logits + linear.sum(1)

    def _columns(self, v: Tensor) -> Tensor:
        """Give the logits, but for bias and linear part, of rows that stand side by side, [D, rows]."""
        mlp, x = self._model[0].mlp, v
        for weight, bias in self._layers:
            x = mlp.activation((weight @ x).add_(bias))
        by_field = v.view(len(self.field_sizes), -1)
        pairs = (self._pairs @ by_field).mul_(by_field).view_as(v).sum(0)
        assert mlp.last is not None
        return torch.addmm(mlp.last.bias, mlp.last.weight, x)[0] + pairs

    def flops(self) -> int:
        """Count the operations of one prediction."""
        return self._model[0].flops()


def _sparse(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return matrix.to_sparse_csr()
