"""MaskNet (Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from fm2.models.choices import Arrangement
from fm2.models.deep.base import DeepModel
from fm2.models.deep.dropout import Dropout
from fm2.models.deep.layers import Linear
from fm2.models.deep.mlp import MLP


class MaskNet(DeepModel):
    """Layers whose inputs are multiplied by a mask that the row's embeddings v decide.

    Every block has a mask of its own, and gives

        block(x) = relu(LN(W (mask(v) ⊙ x)))       mask(v) = W₂ relu(W₁ v + b₁) + b₂

    ``mask_ratio`` is the width of W₁'s outputs, as a multiple of v's (in the paper, of the mask's). The first block's x
    is v with every field's embedding normalized by itself. In the ``serial`` arrangement each further block has the
    output of the one before as its x; in the ``parallel`` one all have the normalized v, and their outputs are put side
    by side. A perceptron follows; the paper's serial model has none but a linear layer there: ``hidden=[]``. A weight
    per feature, which the paper does not have, is added: normalized embeddings speak as loudly of rare features as of
    frequent ones, and small logs need something that does not. For the same reason ``norm_epsilon``, which is added to
    the variance of an embedding, is larger than usual: embeddings far below its root are hardly scaled up.

    Fields may differ in dimension. A single number normalized by itself is no number: a field of dimension 1 is seen
    through the masks alone.

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
        width, self.serial = self.embedding.width, arrangement == "serial"
        inputs = [width, *mask_blocks][: len(mask_blocks)] if self.serial else [width] * len(mask_blocks)
        masked, dropout = max(1, round(mask_ratio * width)), Dropout(mlp["network_dropout"], self.noise)
        self.norm = FieldNorm(self.dims, norm_epsilon)
        self.blocks = nn.ModuleList(
            MaskBlock(width, masked, before, after, dropout) for before, after in zip(inputs, mask_blocks, strict=True)
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

    def flops(self) -> int:
        """Count the operations of one prediction: linear part, normalization, blocks and perceptron."""
        blocks = sum(cast("MaskBlock", block).flops() for block in self.blocks)
        return self.linear_flops() + self.norm.flops() + blocks + self.mlp.flops()


class MaskBlock(nn.Module):
    """A mask of ``inputs`` numbers from the row's embeddings, and the layer whose inputs it masks."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, masked: int, inputs: int, outputs: int, dropout: Dropout) -> None:
        super().__init__()
        self.aggregate, self.project = Linear(width, masked), Linear(masked, inputs)
        self.layer = Linear(inputs, outputs, bias=False)
        self.norm, self.dropout = nn.LayerNorm(outputs), dropout

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        mask = self.project(torch.relu(self.aggregate(embedding)))
        x = torch.relu(self.norm(self.layer(mask * x)))
        return cast("Tensor", self.dropout(x))

    def flops(self) -> int:
        """Count the operations of a row: two per weight, one per masked input, two per normalized output."""
        layers = (self.aggregate, self.project, self.layer)
        return sum(part.flops() for part in layers) + self.layer.in_features + 2 * self.layer.out_features


class FieldNorm(nn.Module):
    """Layer normalization of every field's embedding by itself; fields may differ in dimension.

    Means come from products with a matrix [D, fields] that tells which number is which field's.

    >>> FieldNorm([2, 2])(torch.tensor([[1.0, 3.0, 5.0, 5.0]])).round(decimals=3).tolist()
    [[-1.0, 1.0, 0.0, 0.0]]
    """

    __call__: Callable[..., Tensor]
    _fields: Tensor
    _dims: Tensor

    def __init__(self, dims: Sequence[int], epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        fields = torch.eye(len(dims)).repeat_interleave(torch.tensor(dims), 0)
        self.register_buffer("_fields", fields, persistent=False)
        self.register_buffer("_dims", fields.sum(0), persistent=False)
        self.weight, self.bias = nn.Parameter(torch.ones(len(fields))), nn.Parameter(torch.zeros(len(fields)))

    def forward(self, x: Tensor) -> Tensor:
        centered = x - (x @ self._fields / self._dims) @ self._fields.T
        variance = centered.square() @ self._fields / self._dims
        return centered * (torch.sqrt(variance + self.epsilon).reciprocal() @ self._fields.T) * self.weight + self.bias

    def flops(self) -> int:
        """Count the operations of a row: two per number."""
        return 2 * len(self.weight)
