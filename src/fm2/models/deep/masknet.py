"""MaskNet (Wang et al., "MaskNet: introducing feature-wise multiplication to CTR ranking models", 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from fm2.models.choices import Arrangement
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import MLP, Dropout, FieldMean, Layer, Linear


class MaskNet(DeepModel):
    """Blocks whose inputs are multiplied by an instance-guided mask of the embeddings v (Wang et al., 2021).

        block(x) = relu(LN(W (mask(v) ⊙ x)))       mask(v) = W₂ relu(W₁ v + b₁) + b₂

    Every block has its own mask. ``mask_ratio`` is the number of outputs of W₁ relative to the width of v (in the
    paper, to that of the mask). The input of the first block is v with layer normalization of each field's embedding.
    In the ``serial`` arrangement, the input of every further block is the output of the previous one; in the
    ``parallel`` arrangement, all blocks have the normalized v as input, and their outputs are concatenated. A
    perceptron follows. The paper's serial model has only a linear layer there: ``hidden=[]``.

    Unlike the paper, the model has a weight per feature: normalization gives rare features as much influence as
    frequent ones, and small logs need a part that does not. For the same reason, ``norm_epsilon``, which is added to
    the variance of an embedding, is larger than usual: embeddings much smaller than its square root are hardly scaled
    up.

    Fields can have different dimensions. Layer normalization maps a single number to zero, so fields of dimension 1
    influence only the masks.

    >>> model = MaskNet([10, 20], dims=[4, 2], arrangement="serial", mask_blocks=[8, 5], mask_ratio=2.0, hidden=[])
    >>> first, second = (6 * 12 + 12) + (12 * 6 + 6) + 6 * 8 + 2 * 8, (6 * 12 + 12) + (12 * 8 + 8) + 8 * 5 + 2 * 5
    >>> model.n_parameters == 30 + 10 * 4 + 20 * 2 + 2 * 6 + first + second + (5 + 1)
    True
    """

    def assemble(
        self,
        arrangement: Arrangement,
        mask_blocks: Sequence[int],
        mask_ratio: float,
        norm_epsilon: float,
        **mlp: Any,
    ) -> None:
        width = self.embedding.width
        self.serial = arrangement == "serial"
        inputs = [width, *mask_blocks][: len(mask_blocks)] if self.serial else [width] * len(mask_blocks)
        mask_hidden = max(1, round(mask_ratio * width))
        dropout = Dropout(mlp["network_dropout"], self.noise)
        self.norm = FieldNorm(self.dims, norm_epsilon)
        self.blocks = nn.ModuleList(
            MaskBlock(width, mask_hidden, before, after, dropout)
            for before, after in zip(inputs, mask_blocks, strict=True)
        )
        outputs = [width, *mask_blocks][-1] if self.serial else sum(mask_blocks) or width
        self.mlp = MLP(outputs, noise=self.noise, **mlp)

    def network(self, embedding: Tensor) -> Tensor:
        x = self.norm(embedding)
        if self.serial:
            for block in self.blocks:
                x = block(x, embedding)
        elif self.blocks:
            x = torch.cat([block(x, embedding) for block in self.blocks], 1)
        return self.mlp(x)


class MaskBlock(Layer):
    """A mask computed from the embeddings, and the layer whose inputs it multiplies."""

    def __init__(self, width: int, mask_hidden: int, inputs: int, outputs: int, dropout: Dropout) -> None:
        super().__init__()
        self.aggregate = Linear(width, mask_hidden)
        self.project = Linear(mask_hidden, inputs)
        self.layer = Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs)
        self.dropout = dropout

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        mask = self.project(torch.relu(self.aggregate(embedding)))
        x = torch.relu(self.norm(self.layer(mask * x)))
        return cast("Tensor", self.dropout(x))

    def flops(self) -> int:
        """Return the number of operations per row: two per weight, one per masked input, two per normalized output."""
        layers = (self.aggregate, self.project, self.layer)
        return sum(part.flops() for part in layers) + self.layer.in_features + 2 * self.layer.out_features


class FieldNorm(Layer):
    """Layer normalization of each field's embedding; fields can have different dimensions."""

    def __init__(self, dims: Sequence[int], epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.mean = FieldMean(dims)
        self.weight = nn.Parameter(torch.ones(sum(dims)))
        self.bias = nn.Parameter(torch.zeros(sum(dims)))

    def forward(self, x: Tensor) -> Tensor:
        to_columns = self.mean.membership.T
        centered = x - self.mean(x) @ to_columns
        variance = self.mean(centered.square())
        scale = torch.sqrt(variance + self.epsilon).reciprocal() @ to_columns
        return centered * scale * self.weight + self.bias

    def flops(self) -> int:
        """Return the number of operations per row: two per element."""
        return 2 * len(self.weight)
