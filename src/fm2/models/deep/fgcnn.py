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
from fm2.models.deep.layers import MLP, Linear
from fm2.models.deep.products import InnerProducts
from fm2.models.embedding import FlatEmbedding
from fm2.models.initial import fill_normal


class Generation(nn.Module):
    """One round of feature generation: from maps [rows, maps, n, K] to pooled maps and new features.

    ``forward`` returns the pooled maps [rows, ``out_maps``, ``pooled_n``, K] and the features [rows, ``features``, K].
    """

    def __init__(self, maps: int, out_maps: int, n: int, k: int, height: int, pooling: int, new_maps: int) -> None:
        super().__init__()
        self.n = n
        self.k = k
        self.height = height
        self.pooling = pooling
        self.pooled_n = -(-n // pooling)
        self.features = self.pooled_n * new_maps
        self.weight = nn.Parameter(torch.zeros(out_maps, maps, height, 1))
        self.recombination = Linear(out_maps * self.pooled_n * k, self.features * k)

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial kernels like the matrix of a linear layer that reads ``height`` fields of all maps."""
        out_maps, maps = self.weight.shape[:2]
        fill_normal(self.weight, math.sqrt(2 / ((maps + out_maps) * self.height)), source)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        convolved = functional.conv2d(maps, self.weight, padding=(self.height // 2, 0))[:, :, : self.n]
        pooled = functional.max_pool2d(torch.tanh(convolved), (self.pooling, 1), ceil_mode=True)
        features = torch.tanh(self.recombination(pooled.flatten(1)))
        return pooled, features.view(-1, self.features, self.k)

    def flops(self) -> int:
        """Return the number of operations per row: convolution, including the padding, and recombination."""
        return 2 * self.weight.numel() * self.n * self.k + self.recombination.flops()


class FGCNN(DeepModel):
    """Convolutions over the fields generate new features; an IPNN classifies ("FGCNN + IPNN" of Liu et al., 2019).

    Each round takes maps M of n fields, in the first round the embeddings, and computes

    - C = tanh(conv(M)): ``conv_maps`` maps, with kernels of ``conv_height`` fields × 1 column;
    - S = maxpool(C) over ``pooling`` adjacent fields, the maps of the next round;
    - R = tanh(W vec(S) + b): ``new_maps`` new embeddings for every field of S.

    The first layer of the classifier is l₁ = relu(W_z z + W_p p + b), where z are the embeddings and all R, and p the
    inner products of all their pairs. As in the paper, the convolutions have embeddings of their own, in the table
    ``generation``. The convolutions combine adjacent fields, so the order of the fields matters.

    >>> model = FGCNN([10, 20, 5], dims=4, hidden=[8], conv_maps=[2], conv_height=3, pooling=2, new_maps=1)
    >>> convolution, recombination = 2 * 3, (2 * 2 * 4) * (2 * 4) + 2 * 4
    >>> model.n_parameters == 2 * 35 * 4 + convolution + recombination + ((5 * 4 + 10) * 8 + 8) + (8 + 1)
    True
    """

    wide = False

    def assemble(self, conv_maps: Sequence[int], conv_height: int, pooling: int, new_maps: int, **mlp: Any) -> None:
        if not conv_maps:
            raise Fm2Error("fgcnn: conv_maps is empty; use ipnn for a model without convolutions")
        n, k = len(self.dims), self.dims[0]
        self.generation = FlatEmbedding(self.field_sizes, self.dims, owners=self.embedding.owners)
        self.rounds = nn.ModuleList()
        features = n
        in_maps = 1
        for out_maps in conv_maps:
            generation = Generation(in_maps, out_maps, n, k, conv_height, pooling, new_maps)
            self.rounds.append(generation)
            features += generation.features
            in_maps = out_maps
            n = generation.pooled_n
        self.products = InnerProducts(features, k)
        self.mlp = MLP(features * k + self.products.width, noise=self.noise, **mlp)

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial embeddings of the convolutions."""
        fill_normal(self.generation.weight, self.config["embedding_std"], source)

    def generated(self, generation: Tensor) -> list[Tensor]:
        """Return the new features of every round, [rows, features, K], from the embeddings of ``generation``."""
        maps = self.by_field(generation).unsqueeze(1)
        generated = []
        for part in self.rounds:
            maps, features = part(maps)
            generated.append(features)
        return generated

    def score(
        self, embedding: Tensor | None = None, linear: Tensor | None = None, generation: Tensor | None = None
    ) -> Tensor:
        """Return the logits [rows] from the gathered rows of both tables."""
        assert embedding is not None
        assert generation is not None
        features = torch.cat([self.by_field(embedding), *self.generated(generation)], 1)
        return self.network(features.flatten(1)) + self.bias

    def network(self, embedding: Tensor) -> Tensor:
        """Return the logits [rows] without bias from all features, original and generated, concatenated."""
        products = self.products(embedding.view(-1, self.products.n, self.dims[0]))
        return self.mlp(torch.cat([embedding, products], 1))
