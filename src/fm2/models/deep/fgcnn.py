"""FGCNN (Liu et al., "Feature generation by convolutional neural network for click-through rate prediction", 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.errors import Fm2Error
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import Linear
from fm2.models.deep.mlp import MLP
from fm2.models.deep.products import InnerProducts
from fm2.models.embedding import FlatEmbedding
from fm2.models.initial import fill_normal


class Generation(nn.Module):
    """One round: from ``maps`` maps [rows, maps, n, K] to pooled ones, and to new features [rows, ``features``, K]."""

    def __init__(self, maps: int, out_maps: int, n: int, k: int, height: int, pooling: int, new_maps: int) -> None:
        super().__init__()
        self.n, self.k, self.height, self.pooling = n, k, height, pooling
        self.left = -(-n // pooling)
        self.features = self.left * new_maps
        self.weight = nn.Parameter(torch.zeros(out_maps, maps, height, 1))
        self.recombination = Linear(out_maps * self.left * k, self.features * k)

    def draw(self, source: torch.Generator) -> None:
        """Draw the convolutions' weights as those of a linear layer that sees ``height`` fields of all maps."""
        out_maps, maps = self.weight.shape[:2]
        fill_normal(self.weight, math.sqrt(2 / ((maps + out_maps) * self.height)), source)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        same = functional.conv2d(maps, self.weight, padding=(self.height // 2, 0))[:, :, : self.n]
        pooled = functional.max_pool2d(torch.tanh(same), (self.pooling, 1), ceil_mode=True)
        new = torch.tanh(self.recombination(pooled.flatten(1)))
        return pooled, new.view(-1, self.features, self.k)

    def flops(self) -> int:
        """Count the operations of a row: convolutions (zeros beyond the first and last field too), recombination."""
        return 2 * self.weight.numel() * self.n * self.k + self.recombination.flops()


class FGCNN(DeepModel):
    """Convolutions over the fields make new features of the embeddings; an IPNN sees both ("FGCNN + IPNN").

    In each round, for the maps M of the last one (at first the embeddings themselves) with n fields each:

    - C = tanh(conv(M)), ``conv_height`` fields × 1 column, ``conv_maps`` maps of as many fields;
    - S = the largest of every ``pooling`` fields of C that follow each other; the next round's M;
    - R = tanh(W vec(S) + b), ``new_maps`` new embeddings for every field of S.

    The classifier's features are its own embeddings and all R: l₁ = relu(W_z z + W_p p + b), z all of them, p the inner
    products of all pairs. As in the paper, what the convolutions see are other embeddings, in a table of their own,
    ``generation``. Neighbors matter: the order of fields is part of the model.

    >>> model = FGCNN([10, 20, 5], dims=4, hidden=[8], conv_maps=[2], conv_height=3, pooling=2, new_maps=1)
    >>> convolution, recombination = 2 * 3, (2 * 2 * 4) * (2 * 4) + 2 * 4
    >>> model.n_parameters == 2 * 35 * 4 + convolution + recombination + ((5 * 4 + 10) * 8 + 8) + (8 + 1)
    True
    """

    wide = False

    def assemble(self, conv_maps: Sequence[int], conv_height: int, pooling: int, new_maps: int, **mlp: Any) -> None:
        if not conv_maps:
            raise Fm2Error("fgcnn: conv_maps is empty; without convolutions it would be ipnn, which is there")
        n, k, before = len(self.dims), self.dims[0], 1
        self.generation = FlatEmbedding(self.field_sizes, self.dims)
        self.rounds = nn.ModuleList()
        features = n
        for maps in conv_maps:
            made = Generation(before, maps, n, k, conv_height, pooling, new_maps)
            self.rounds.append(made)
            n, before, features = made.left, maps, features + made.features
        self.products = InnerProducts(features)
        self.mlp = MLP(features * k + self.products.width, noise=self.noise, **mlp)

    def draw(self, source: torch.Generator) -> None:
        """Draw the embeddings that features are made of."""
        fill_normal(self.generation.weight, self.config["embedding_std"], source)

    def generated(self, generation: Tensor) -> list[Tensor]:
        """Give the new features of every round, [rows, features, K], from the embeddings of ``generation``."""
        maps, found = self.by_field(generation).unsqueeze(1), []
        for part in self.rounds:
            maps, new = part(maps)
            found.append(new)
        return found

    def score(
        self, embedding: Tensor | None = None, linear: Tensor | None = None, generation: Tensor | None = None
    ) -> Tensor:
        """Give the logits [rows] from the gathered rows of both tables."""
        assert embedding is not None
        assert generation is not None
        features = torch.cat([self.by_field(embedding), *self.generated(generation)], 1)
        return self.network(features.flatten(1)) + self.bias

    def network(self, embedding: Tensor) -> Tensor:
        """Classify by all features, old and new, side by side."""
        products = self.products(embedding.view(-1, self.products.n, self.dims[0]))
        return self.mlp(torch.cat([embedding, products], 1))

    def flops(self) -> int:
        """Count the floating point operations of one prediction: rounds, inner products and perceptron."""
        rounds = sum(part.flops() for part in self.modules() if isinstance(part, Generation))
        return rounds + self.products.flops(self.dims[0]) + self.mlp.flops()
