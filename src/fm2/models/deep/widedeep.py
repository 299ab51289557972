"""Wide & Deep (Cheng et al., "Wide & Deep learning for recommender systems", 2016)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP


class WideDeep(DeepModel):
    """A weight per feature (the wide part) and a multi-layer perceptron of the embeddings (Cheng et al., 2016).

        logit = b + Σ_i w_i + MLP([v_1, …, v_n])

    The wide part of the paper also contains handcrafted cross-product features. Here, they need a field of their own in
    the data.

    >>> model = WideDeep([10, 20], dims=[4, 2], hidden=[8])
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, **mlp: Any) -> None:
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: linear part and perceptron."""
        return self.linear_flops() + self.mlp.flops()
