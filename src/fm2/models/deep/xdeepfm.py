"""xDeepFM (Lian et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.cin import CIN
from fm2.models.deep.mlp import MLP


class XDeepFM(DeepModel):
    """A compressed interaction network, a multi-layer perceptron and a weight per feature, added up.

    The network's k-th layer has maps of order k + 1, Xᵏₕ = Σᵢⱼ Wᵏʰᵢⱼ (Xᵏ⁻¹ᵢ ∘ X⁰ⱼ), without activation, as the paper
    found best. ``cin`` are their numbers. By the paper's equations all maps of a layer go on to the next and to the
    output; with ``cin_split``, as in the authors' program, the first half goes on, and the second to the output.

    >>> model = XDeepFM([10, 20], dims=4, hidden=[8], cin=[6, 4])
    >>> cin = 6 * 3 + 4 * (3 * 2) + (3 + 4)
    >>> model.n_parameters == 30 + 30 * 4 + cin + (8 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, cin: Sequence[int], cin_split: bool, **mlp: Any) -> None:
        if not cin:
            raise Fm2Error("xdeepfm: cin has no layer; what is left without any is widedeep")
        self.cin = CIN(len(self.dims), cin, cin_split)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.cin(self.by_field(embedding)) + self.mlp(embedding)

    def flops(self) -> int:
        """Count the floating point operations of one prediction: interaction network, linear part and perceptron."""
        return self.cin.flops(self.dims[0]) + self.linear_flops() + self.mlp.flops()
