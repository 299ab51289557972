"""Logistic regression: a weight per feature."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fm2.models.base import GatheredModel
from fm2.models.embedding import FlatEmbedding
from fm2.models.initial import Seed


class LR(GatheredModel):
    """Logistic regression (equation 2 of the paper): b + Σ_i w_i, with a weight per feature; all start at zero.

    >>> model = LR([10, 20])
    >>> model.n_parameters, model.flops()
    (30, 4)
    """

    def __init__(self, field_sizes: Sequence[int], seed: Seed = 0) -> None:
        super().__init__({"field_sizes": list(field_sizes)})
        self.linear = FlatEmbedding(field_sizes, 1)

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        """Return the logits [rows] from the gathered weights [rows, fields]."""
        assert linear is not None
        return linear.sum(1) + self.bias
