"""NFmFM: the paper's further work (section 6), a field-matrixed factorization machine that is not linear."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models import complexity
from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.family.matrix import FieldMatrixInteraction


class NFmFM(DeepModel):
    """A field-matrixed factorization machine whose products also go through a perceptron, before they are summed.

    With all embeddings side by side in v and all field matrices in the symmetric S, an FmFM is half the sum of the
    numbers

        p = v ⊙ (S v)       p_i = v_i ⊙ Σ_{j≠i} M[i,j] v_jᵀ, as many numbers as field i's embedding has

    which tell for every field what all others, transformed, have in common with it. Here

        ½ Σ p + MLP(p)

    A non-linear function of each pair's transformed vector v_i M[i,j] by itself would need all n (n - 1) of them, and S
    is fast because it needs none: the sum over j is in its product. So what is not linear comes after that sum, at the
    cost of a perceptron of D inputs, as deep as DeepFM's. The neural factorization machine (He and Chua, 2017) does so
    with the identity for S; it sums p over the fields, and leaves the FM's own sum out. With that sum the perceptron
    has to learn only what an FmFM lacks: where its last layer is zero, this is one. Fields may differ in dimension.

    >>> model = NFmFM([10, 20], dims=[4, 2], hidden=[8])
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + 4 * 2 + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, matrix_std: float, **mlp: Any) -> None:
        self.interaction = FieldMatrixInteraction(self.dims, matrix_std, seed=None)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        products = embedding * self.interaction.product(embedding)
        return products.sum(1) / 2 + self.mlp(products)

    def flops(self) -> int:
        """Count the floating point operations of one prediction: FmFM with its linear part, and the perceptron."""
        return complexity.fmfm(self.dims) + self.mlp.flops()
