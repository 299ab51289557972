"""DCN-V2 (Wang et al., 2021)."""

from __future__ import annotations

from typing import Any

from fm2.models.deep.cross import Cross, CrossMixture, CrossModel


class DCNV2(CrossModel):
    """Cross layers xₗ₊₁ = x₀ ⊙ (Wₗ xₗ + bₗ) + xₗ, with a multi-layer perceptron above them or beside them.

    x₀ are the embeddings side by side. With a ``cross_rank``, W is a mixture of ``experts`` of that rank, DCN-Mix:
    xₗ₊₁ = Σᵢ Gᵢ(xₗ) (x₀ ⊙ (Uᵢ g(Cᵢ g(Vᵢᵀ xₗ)) + bₗ)) + xₗ, where g is tanh, also of a single expert: the paper's other
    form of low rank, linear in xₗ, is not there. The output of a ``stacked`` model is the perceptron's of x_L; of a
    ``parallel`` one σ(wᵀ[x_L, h]), where h is the perceptron's last layer. There is no weight per feature.

    >>> model = DCNV2([10, 20], dims=[4, 2], hidden=[8], cross_layers=3, structure="stacked")
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (6 * 6 + 6) + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, cross_layers: int, cross_rank: int, experts: int, structure: str, **mlp: Any) -> None:
        def layer() -> Cross | CrossMixture:
            width = self.embedding.width
            return CrossMixture(width, cross_rank, experts) if cross_rank else Cross(width)

        self.put_together((layer() for _ in range(cross_layers)), structure, **mlp)
