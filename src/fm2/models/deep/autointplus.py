"""AutoInt+ (Song et al., 2019): AutoInt with a multi-layer perceptron."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models.deep.autoint import AutoInt
from fm2.models.deep.mlp import MLP


class AutoIntPlus(AutoInt):
    """AutoInt and a multi-layer perceptron of the same embeddings; their logits are added (Song et al., 2019).

        logit = AutoInt(e₁, …, eₙ) + MLP([e₁, …, eₙ])

    ``network_dropout`` applies to both parts.

    >>> model = AutoIntPlus([10, 20], dims=4, hidden=[8], attention_layers=1, attention_heads=2, attention_dim=3)
    >>> model.n_parameters == 30 * 4 + 4 * 6 * 4 + 2 * 6 + (8 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(
        self, attention_layers: int, attention_heads: int, attention_dim: int, network_dropout: float, **mlp: Any
    ) -> None:
        super().assemble(attention_layers, attention_heads, attention_dim, network_dropout)
        self.mlp = MLP(self.embedding.width, noise=self.noise, network_dropout=network_dropout, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return super().network(embedding) + self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: AutoInt and perceptron."""
        return super().flops() + self.mlp.flops()
