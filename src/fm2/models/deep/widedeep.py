"""Wide & Deep (Cheng et al., 2016)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP


class WideDeep(DeepModel):
    """A weight per feature, the wide part, beside a multi-layer perceptron of the embeddings, the deep part.

    The paper's wide part also has products of features, chosen by hand; here they have weights if the data has a field
    of such products.

    >>> model = WideDeep([10, 20], dims=[4, 2], hidden=[8])
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, **mlp: Any) -> None:
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.mlp(embedding)

    def flops(self) -> int:
        """Count the floating point operations of one prediction: both parts."""
        return self.linear_flops() + self.mlp.flops()
