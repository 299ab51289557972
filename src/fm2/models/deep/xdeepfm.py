"""xDeepFM (Lian et al., "xDeepFM: combining explicit and implicit feature interactions", 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.cin import CIN
from fm2.models.deep.mlp import MLP


class XDeepFM(DeepModel):
    """A compressed interaction network (CIN), a multi-layer perceptron and a linear part (Lian et al., 2018).

        logit = Σ_i w_i + CIN(X⁰) + MLP(X⁰), with maps Xᵏₕ = Σᵢⱼ Wᵏʰᵢⱼ (Xᵏ⁻¹ᵢ ∘ X⁰ⱼ) of order k + 1 in layer k

    ``cin`` holds the number of maps of each layer; they have no activation, which the paper found best. In the paper's
    equations, all maps of a layer go to the next layer and to the output. With ``cin_split``, as in the authors' code,
    the first half goes to the next layer and the second half to the output.

    >>> model = XDeepFM([10, 20], dims=4, hidden=[8], cin=[6, 4])
    >>> cin = 6 * 3 + 4 * (3 * 2) + (3 + 4)
    >>> model.n_parameters == 30 + 30 * 4 + cin + (8 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, cin: Sequence[int], cin_split: bool, **mlp: Any) -> None:
        if not cin:
            raise Fm2Error("xdeepfm: cin is empty; use widedeep for a model without CIN layers")
        self.cin = CIN(len(self.dims), cin, cin_split)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.cin(self.by_field(embedding)) + self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: CIN, linear part and perceptron."""
        return self.cin.flops(self.dims[0]) + self.linear_flops() + self.mlp.flops()
