"""NFmFM: a nonlinear FmFM, suggested as future work in section 6 of the paper."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fm2.models import complexity
from fm2.models.deep.base import DeepModel
from fm2.models.deep.mlp import MLP
from fm2.models.family.matrix import FieldMatrixInteraction


class NFmFM(DeepModel):
    """A field-matrixed factorization machine whose products are also the input of a multi-layer perceptron.

    With v the concatenated embeddings and S the symmetric matrix of all field matrices,

        logit = b + Σ_i w_i + ½ Σ p + MLP(p), with p = v ⊙ (S v), that is p_i = v_i ⊙ Σ_{j≠i} M[i,j] v_jᵀ

    p_i has the dimension of field i and describes its interaction with all other fields; ½ Σ p is the FmFM. A
    nonlinear function of every single v_i M[i,j] would need all n (n - 1) of these vectors, while the product with S
    computes none of them. The nonlinearity is therefore applied after the sum over j, at the cost of DeepFM's
    perceptron.

    The neural factorization machine (He and Chua, 2017) is similar, with the identity for S; it sums p over the fields
    and omits the FM term. With the FmFM term, the perceptron only has to learn what an FmFM cannot represent: with
    zeros in its last layer, the model is an FmFM. Fields can have different dimensions.

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
        """Return the number of operations per prediction: FmFM with its linear part, and perceptron."""
        return complexity.fmfm(self.dims) + self.mlp.flops()
