"""AutoInt+ (Song et al., 2019)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models.deep.autoint import AutoInt
from fm2.models.deep.mlp import MLP


class AutoIntPlus(AutoInt):
    """AutoInt, and a multi-layer perceptron of the same embeddings: the sum of their logits.

    >>> model = AutoIntPlus([10, 20], dims=4, hidden=[8], attention_layers=1, attention_heads=2, attention_dim=3)
    >>> model.n_parameters == 30 * 4 + 4 * 6 * 4 + 2 * 6 + (8 * 8 + 8) + (8 + 1)
    True
    """

    registered = "autointplus"

    def assemble(self, attention_layers: int, attention_heads: int, attention_dim: int, **mlp: Any) -> None:
        super().assemble(attention_layers, attention_heads, attention_dim)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return super().network(embedding) + self.mlp(embedding)

    def flops(self) -> int:
        """Count the floating point operations of one prediction: attention and perceptron."""
        return super().flops() + self.mlp.flops()
