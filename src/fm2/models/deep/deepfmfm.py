"""DeepFmFM: the paper's further work (section 6), a field-matrixed factorization machine inside DeepFM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fm2.models import complexity
from fm2.models.choices import Linear
from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.family.matrix import FieldMatrixInteraction
from fm2.models.initial import fill_normal


class DeepFmFM(DeepModel):
    """A field-matrixed factorization machine and a multi-layer perceptron that share their embeddings.

    Fields may differ in dimension. The ``linear`` part is FmFM's: a weight per feature (``features``), a vector per
    field (``fields``) or ``both``. ``matrix_std`` is the deviation of the first matrices and of these vectors.

    >>> model = DeepFmFM([10, 20], dims=[4, 2], hidden=[8])
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + 4 * 2 + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, linear: Linear, matrix_std: float, **mlp: Any) -> None:
        self.wide = linear != "fields"
        self.field_linear = nn.Parameter(torch.zeros(self.embedding.width)) if linear != "features" else None
        self.interaction = FieldMatrixInteraction(self.dims, matrix_std, seed=None)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def draw(self, source: torch.Generator) -> None:
        """Draw the vectors of the linear part."""
        if self.field_linear is not None:
            fill_normal(self.field_linear, self.interaction.scale, source)

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding, self.field_linear) + self.mlp(embedding)

    def flops(self) -> int:
        """Count the floating point operations of one prediction: FmFM with its linear part, and the perceptron."""
        return complexity.fmfm(self.dims) + self.mlp.flops()
