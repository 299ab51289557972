"""GDCN (Wang et al., 2023)."""

from __future__ import annotations

from typing import Any

from fm2.models.deep.cross import CrossModel, GatedCross


class GDCN(CrossModel):
    """Gated cross layers cₗ₊₁ = c₀ ⊙ (Wₗ cₗ + bₗ) ⊙ σ(Gₗ cₗ) + cₗ, and a multi-layer perceptron.

    c₀ are the embeddings side by side; the gates tell the products of each order that matter from those that do not.
    The output of a ``parallel`` model is σ(wᵀ[c_L, h]), where h is the perceptron's last layer; of a ``stacked`` one
    the perceptron's of c_L. There is no weight per feature.

    >>> model = GDCN([10, 20], dims=[4, 2], hidden=[8], cross_layers=3)
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (2 * 6 * 6 + 6) + (6 * 8 + 8) + (6 + 8 + 1)
    True
    """

    def assemble(self, cross_layers: int, structure: str, **mlp: Any) -> None:
        layers = (GatedCross(self.embedding.width) for _ in range(cross_layers))
        self.put_together(layers, structure, **mlp)
