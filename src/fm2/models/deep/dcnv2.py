"""DCN-V2 (Wang et al., "DCN V2: improved deep & cross network", 2021)."""

from __future__ import annotations

from typing import Any

from fm2.errors import Fm2Error
from fm2.models.deep.cross import Cross, CrossMixture, CrossModel


class DCNV2(CrossModel):
    """Cross layers with matrices and a multi-layer perceptron (Wang et al., 2021).

        xₗ₊₁ = x₀ ⊙ (Wₗ xₗ + bₗ) + xₗ

    x₀ is the concatenation of the embeddings. With ``cross_rank``, a layer is a mixture of ``experts`` of that rank
    (DCN-Mix), where g is tanh:

        xₗ₊₁ = Σᵢ Gᵢ(xₗ) (x₀ ⊙ (Uᵢ g(Cᵢ g(Vᵢᵀ xₗ)) + bₗ)) + xₗ

    A single expert also has this form; the paper's low-rank layer without g is not implemented. In the ``stacked``
    structure, the logit is MLP(x_L); in the ``parallel`` structure, it is wᵀ[x_L, h] + b, where h is the last hidden
    layer of MLP(x₀). There is no weight per feature.

    >>> model = DCNV2([10, 20], dims=[4, 2], hidden=[8], cross_layers=3, structure="stacked")
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (6 * 6 + 6) + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, cross_layers: int, cross_rank: int, experts: int, structure: str, **mlp: Any) -> None:
        width = self.embedding.width
        if cross_rank > width:
            raise Fm2Error(
                f"dcnv2: cross_rank must be at most {width}, the sum of the fields' dimensions, got {cross_rank}; "
                "cross_rank=0 selects full matrices"
            )
        if not cross_rank and experts != self._with_defaults(self.spec, {})["experts"]:
            raise Fm2Error(f"dcnv2: experts={experts} requires cross_rank; layers with full matrices have no experts")
        layers = (CrossMixture(width, cross_rank, experts) if cross_rank else Cross(width) for _ in range(cross_layers))
        self.assemble_cross(layers, structure, **mlp)
