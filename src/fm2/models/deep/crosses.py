"""Cross networks: DCN, DCN-V2 and GDCN.

- Wang et al., "Deep & Cross network for ad click predictions", 2017
- Wang et al., "DCN V2: improved deep & cross network", 2021
- Wang et al., "Towards deeper, lighter and interpretable cross network for CTR prediction", 2023
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, Layer, Linear
from fm2.models.initial import fill_normal


class VectorCross(Layer):
    """The cross network of DCN with its output weights, from embeddings x₀ [rows, D] to logits [rows].

    With xₗ₊₁ = x₀ xₗᵀwₗ + bₗ + xₗ, every xₗ equals αₗ x₀ + βₗ, where βₗ = b₀ + … + bₗ₋₁ does not depend on the row, and
    αₗ₊₁ = αₗ (1 + x₀ᵀwₗ) + βₗᵀwₗ is one number per row. A single product of x₀ with all w, including the output's, is
    therefore enough; the logit is α x₀ᵀw + βᵀw.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(layers + 1, width))  # the output weights are last
        self.bias = nn.Parameter(torch.zeros(layers, width))

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial weight vectors; the biases stay zero."""
        fill_normal(self.weight, math.sqrt(2 / (self.weight.shape[1] + 1)), source)

    def forward(self, x: Tensor) -> Tensor:
        beta_products = (functional.pad(self.bias.cumsum(0), (0, 0, 1, 0)) * self.weight).sum(1)
        x_products = functional.linear(self.weight, x)
        n_layers = len(self.bias)
        alpha: Tensor | float = 1.0
        for layer in range(n_layers):
            alpha = alpha * (1 + x_products[layer]) + beta_products[layer]
        return alpha * x_products[n_layers] + beta_products[n_layers]

    def flops(self) -> int:
        """Return the number of operations per row: the products, three per layer, and two for the output."""
        return 2 * self.weight.numel() + 3 * len(self.bias) + 2


class DCN(DeepModel):
    """A cross network in parallel with a multi-layer perceptron (Wang et al., 2017).

        logit = wᵀ[x_L, h] + b, with xₗ₊₁ = x₀ xₗᵀwₗ + bₗ + xₗ

    x₀ is the concatenation of the embeddings, and h the last hidden layer of the perceptron. Each cross layer raises
    the degree of the polynomial in the embeddings by one. There is no weight per feature.

    >>> model = DCN([10, 20], dims=[4, 2], hidden=[8], cross_layers=3)
    >>> model.n_parameters == 10 * 4 + 20 * 2 + 3 * (6 + 6) + (6 * 8 + 8) + (6 + 8 + 1)
    True
    """

    wide = False

    def assemble(self, cross_layers: int, **mlp: Any) -> None:
        self.cross = VectorCross(self.embedding.width, cross_layers)
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        return self.cross(embedding) + self.mlp(embedding)  # equals one linear unit of both concatenated outputs


class Cross(Layer):
    """A cross layer of DCN-V2: x₀ ⊙ (W x + b) + x, from x₀ and x [rows, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix = Linear(width, width)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        return torch.addcmul(x, x0, self.matrix(x))

    def flops(self) -> int:
        """Return the number of operations per row: those of the matrix, and two per element of x."""
        return self.matrix.flops() + 2 * self.matrix.out_features


class GatedCross(Cross):
    """A cross layer of GDCN: x₀ ⊙ (W x + b) ⊙ σ(W_g x) + x."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.gate = Linear(width, width, bias=False)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        return torch.addcmul(x, x0, self.matrix(x) * torch.sigmoid(self.gate(x)))

    def flops(self) -> int:
        """Return the number of operations per row: those of both matrices, and three per element of x."""
        return super().flops() + self.gate.flops() + self.gate.out_features


class CrossMixture(Layer):
    """A mixture of low-rank experts as in DCN-V2: Σᵢ Gᵢ(x) (x₀ ⊙ (Uᵢ g(Cᵢ g(Vᵢᵀ x)) + b)) + x, where g is tanh.

    The gates G are the softmax of a linear layer; a single expert has no gate. Since the gates sum to one, the products
    with all Uᵢ are a single product of the concatenated Uᵢ and the concatenated gated vectors.
    """

    def __init__(self, width: int, rank: int, experts: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.zeros(experts * rank, width))
        self.core = nn.Parameter(torch.zeros(experts, rank, rank))
        self.up = nn.Parameter(torch.zeros(experts * rank, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.gate = Linear(width, experts, bias=False) if experts > 1 else None

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial matrices of each expert like those of linear layers."""
        _, rank, _ = self.core.shape
        for matrices, inputs in ((self.down, len(self.bias)), (self.core, rank), (self.up, len(self.bias))):
            fill_normal(matrices, math.sqrt(2 / (inputs + rank)), source)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        experts, rank, _ = self.core.shape
        low = torch.tanh(x @ self.down.t()).view(-1, experts, rank).transpose(0, 1)
        low = torch.tanh(low @ self.core.transpose(1, 2)).transpose(0, 1)
        if self.gate is not None:
            low = low * torch.softmax(self.gate(x), 1)[:, :, None]
        return torch.addcmul(x, x0, torch.addmm(self.bias, low.flatten(1), self.up))

    def flops(self) -> int:
        """Return the number of operations per row: two per weight, one per gated element, two per element of x."""
        gates = 0 if self.gate is None else self.gate.flops() + len(self.down)
        weights = self.down.numel() + self.core.numel() + self.up.numel()
        return 2 * weights + gates + 2 * len(self.bias)


class CrossModel(DeepModel):
    """Base class of cross networks; the perceptron reads x_L (``stacked``) or x₀ (``parallel``)."""

    wide = False

    def assemble_cross(self, layers: Iterable[Cross | CrossMixture], structure: str, **mlp: Any) -> None:
        """Create the perceptron and, in the parallel structure, the output weights of the cross layers."""
        self.layers = cast("Iterable[Cross | CrossMixture]", nn.ModuleList(layers))
        self.mlp = MLP(self.embedding.width, noise=self.noise, **mlp)
        self.last = Linear(self.embedding.width, 1, bias=False) if structure == "parallel" else None

    def network(self, embedding: Tensor) -> Tensor:
        x = embedding
        for layer in self.layers:
            x = layer(embedding, x)
        if self.last is None:
            return self.mlp(x)
        logits: Tensor = self.last(x).squeeze(1)
        return logits + self.mlp(embedding)  # equals one linear unit of both concatenated outputs


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
