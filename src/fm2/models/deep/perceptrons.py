"""A multi-layer perceptron next to simpler terms: Wide & Deep, DeepFM, DeepFmFM and NFmFM.

- Cheng et al., "Wide & Deep learning for recommender systems", 2016
- Guo et al., "DeepFM: a factorization-machine based neural network for CTR prediction", 2017
- DeepFmFM and NFmFM: suggested as future work in section 6 of the paper
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fm2.models import complexity
from fm2.models.choices import Linear
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP
from fm2.models.family.diagonal import Constant
from fm2.models.family.matrix import FieldMatrixInteraction
from fm2.models.initial import fill_normal


class WideDeep(DeepModel):
    """A weight per feature (the wide part) and a multi-layer perceptron of the embeddings (Cheng et al., 2016).

        logit = b + Σ_i w_i + MLP([v_1, …, v_n])

    The wide part of the paper also contains handcrafted cross-product features. Here, they need a field of their own in
    the data.

    >>> model = WideDeep([10, 20], dims=[4, 2], hidden=[8])
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, **mlp: Any) -> None:
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.mlp(embedding)


class DeepFM(DeepModel):
    """A factorization machine and a multi-layer perceptron with shared embeddings (Guo et al., 2017).

        logit = b + Σ_i w_i + Σ_{i<j} <v_i, v_j> + MLP([v_1, …, v_n])

    >>> model = DeepFM([10, 20], dims=4, hidden=[8])
    >>> model.n_parameters == 30 + 30 * 4 + (8 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, **mlp: Any) -> None:
        self.interaction = Constant(self.dims)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding) + self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: FM, linear part and perceptron."""
        return complexity.fm(len(self.dims), self.dims[0]) + super().flops()


class DeepFmFM(DeepModel):
    """A field-matrixed factorization machine and a multi-layer perceptron with shared embeddings.

        logit = b + linear part + Σ_{i<j} v_i M[i,j] v_jᵀ + MLP([v_1, …, v_n])

    Fields can have different dimensions. The ``linear`` part is that of FmFM: a weight per feature (``features``), a
    vector per field (``fields``), or ``both``. ``matrix_std`` is the standard deviation of the initial field matrices
    and of these vectors.

    >>> model = DeepFmFM([10, 20], dims=[4, 2], hidden=[8])
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + 4 * 2 + (6 * 8 + 8) + (8 + 1)
    True
    """

    def assemble(self, linear: Linear, matrix_std: float, **mlp: Any) -> None:
        self.wide = linear != "fields"
        self.field_linear = nn.Parameter(torch.zeros(self.embedding.width)) if linear != "features" else None
        self.interaction = FieldMatrixInteraction(self.dims, matrix_std, seed=None)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial vectors of the linear part."""
        if self.field_linear is not None:
            fill_normal(self.field_linear, self.interaction.scale, source)

    def network(self, embedding: Tensor) -> Tensor:
        return self.interaction(embedding, self.field_linear) + self.mlp(embedding)

    def flops(self) -> int:
        """Return the number of operations per prediction: FmFM with its linear part, and perceptron."""
        return complexity.fmfm(self.dims) + self.mlp.flops()


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
