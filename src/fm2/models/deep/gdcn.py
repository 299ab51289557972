"""GDCN (Wang et al., "Towards deeper, lighter and interpretable cross network for CTR prediction", 2023)."""

from __future__ import annotations

from typing import Any

from fm2.models.deep.cross import CrossModel, GatedCross


class GDCN(CrossModel):
    """Gated cross layers and a multi-layer perceptron (Wang et al., 2023).

        cₗ₊₁ = c₀ ⊙ (Wₗ cₗ + bₗ) ⊙ σ(Gₗ cₗ) + cₗ

    c₀ is the concatenation of the embeddings. The gates σ(Gₗ cₗ) select the important products of each order. In the
    ``parallel`` structure, the logit is wᵀ[c_L, h] + b, where h is the last hidden layer of MLP(c₀); in the ``stacked``
    structure, it is MLP(c_L). There is no weight per feature.

    >>> model = GDCN([10, 20], dims=[4, 2], hidden=[8], cross_layers=3)
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (2 * 6 * 6 + 6) + (6 * 8 + 8) + (6 + 8 + 1)
    True
    """

    def assemble(self, cross_layers: int, structure: str, **mlp: Any) -> None:
        layers = (GatedCross(self.embedding.width) for _ in range(cross_layers))
        self.assemble_cross(layers, structure, **mlp)
