"""AutoInt (Song et al., "AutoInt: automatic feature interaction learning via self-attentive neural networks", 2019)."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from fm2.models.deep.attention import FieldAttention
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, Dropout, Linear


class AutoInt(DeepModel):
    """Layers of multi-head self-attention between fields, followed by a linear unit (Song et al., 2019).

        logit  = wᵀ[e₁, …, eₙ] + b, with eₘ the output of the last layer
        layer:   eₘ ← ReLU(ẽₘ + W_R eₘ)
        head:    ẽₘ = Σₖ αₘₖ W_V eₖ, with αₘ = softmaxₖ((W_Q eₘ)ᵀ(W_K eₖ)); the heads are concatenated

    ``attention_dim`` is the dimension of a head. ``network_dropout`` applies to the output of the last layer. With
    ``wide=True``, a weight per feature is added, which the paper does not have.

    >>> model = AutoInt([10, 20], dims=4, attention_layers=2, attention_heads=2, attention_dim=3)
    >>> model.n_parameters == 30 * 4 + 4 * 6 * 4 + 4 * 6 * 6 + 2 * 6
    True
    """

    wide = False

    def assemble(self, attention_layers: int, attention_heads: int, attention_dim: int, network_dropout: float) -> None:
        widths = [self.dims[0], *[attention_heads * attention_dim] * attention_layers]
        self.attention = nn.Sequential(
            *(FieldAttention(len(self.dims), width, attention_heads, attention_dim) for width in widths[:-1])
        )
        self.dropout = Dropout(network_dropout, self.noise)
        self.last = Linear(len(self.dims) * widths[-1], 1, bias=False)

    def network(self, embedding: Tensor) -> Tensor:
        attended = self.attention(self.by_field(embedding)).flatten(1)
        logits: Tensor = self.last(self.dropout(attended))
        return logits.squeeze(1)

    def share_threads(self, threads: int) -> int:
        """Assign all threads to attention: torch has little else to do, and its waiting threads would slow it down."""
        for layer in self.attention:
            cast("FieldAttention", layer).threads = threads
        return 1


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
