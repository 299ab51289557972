"""AutoInt (Song et al., 2019)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from fm2.models.deep.attention import FieldAttention
from fm2.models.deep.base import DeepModel
from fm2.models.deep.dropout import Dropout
from fm2.models.deep.layers import Linear


class AutoInt(DeepModel):
    """Layers of attention between fields, and a linear unit of what all fields end with: σ(wᵀ[e₁, …, eₙ] + b).

    A layer makes of field m, in each of its heads, Σₖ αₘₖ W_V eₖ with αₘ = softmaxₖ((W_Q eₘ)ᵀ(W_K eₖ)), and of these,
    side by side, ReLU(heads + W_R eₘ). ``attention_dim`` is that of a head. ``network_dropout`` drops from what the
    fields end with. A weight per feature is added if it is ``wide``, which the paper's is not.

    >>> model = AutoInt([10, 20], dims=4, attention_layers=2, attention_heads=2, attention_dim=3)
    >>> model.n_parameters == 30 * 4 + 4 * 6 * 4 + 4 * 6 * 6 + 2 * 6
    True
    """

    wide = False

    def assemble(self, attention_layers: int, attention_heads: int, attention_dim: int, network_dropout: float) -> None:
        widths = [self.dims[0], *[attention_heads * attention_dim] * attention_layers]
        self.attention = nn.Sequential(
            *(FieldAttention(inputs, attention_heads, attention_dim) for inputs, _ in pairwise(widths))
        )
        self.dropout = Dropout(network_dropout, self.noise)
        self.last = Linear(len(self.dims) * widths[-1], 1, bias=False)

    def network(self, embedding: Tensor) -> Tensor:
        logits: Tensor = self.last(self.dropout(self.attention(self.by_field(embedding)).flatten(1)))
        return logits.squeeze(1)

    def share_threads(self, threads: int) -> int:
        """Take all threads for attention: torch's own, waiting for the little else there is, would be in their way."""
        for layer in self._layers():
            layer.threads = threads
        return 1

    def flops(self) -> int:
        """Count the floating point operations of one prediction: linear part, layers of attention, and the output."""
        attention = sum(layer.flops(len(self.dims)) for layer in self._layers())
        return self.linear_flops() + attention + self.last.flops()

    def _layers(self) -> list[FieldAttention]:
        return [layer for layer in self.attention if isinstance(layer, FieldAttention)]
