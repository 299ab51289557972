"""DeepFM (Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction", 2017)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models import complexity
from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.family.constant import Constant


class DeepFM(DeepModel):
    """A factorization machine and a multi-layer perceptron with shared embeddings (Guo et al., 2017).

        logit = b + Σ_i w_i + Σ_{i<j} <v_i, v_j> + MLP([v_1, …, v_n])

    >>> model = DeepFM([10, 20], dims=4, hidden=[8])
    >>> model.n_parameters == 30 + 30 * 4 + (8 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, **mlp: Any) -> None:
        self.interaction = Constant(self.dims)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding) + self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: FM, linear part and perceptron."""
        return complexity.fm(len(self.dims), self.dims[0]) + self.linear_flops() + self.mlp.flops()
