"""DeepFmFM: a DeepFM with field matrices, suggested as future work in section 6 of the paper."""

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
    """A field-matrixed factorization machine and a multi-layer perceptron with shared embeddings.

        logit = b + linear part + Σ_{i<j} v_i M[i,j] v_jᵀ + MLP([v_1, …, v_n])

    Fields can have different dimensions. The ``linear`` part is that of FmFM: a weight per feature (``features``), a
    vector per field (``fields``), or ``both``. ``matrix_std`` is the standard deviation of the initial field matrices
    and of these vectors.

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
        """Draw the initial vectors of the linear part."""
        if self.field_linear is not None:
            fill_normal(self.field_linear, self.interaction.scale, source)

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding, self.field_linear) + self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: FmFM with its linear part, and perceptron."""
        return complexity.fmfm(self.dims) + self.mlp.flops()
