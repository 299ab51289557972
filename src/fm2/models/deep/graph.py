"""A graph of fields, as Fi-GNN has it: every field is a node, with an edge from every other."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.models.deep.layers import Linear
from fm2.models.initial import fill_normal


class FieldGraph(nn.Module):
    """States [rows, n, width] that go in some steps along edges, whose weights come from embeddings [rows, n, K].

    >>> graph = FieldGraph(3, 5, 4)
    >>> edges = graph.edges(torch.zeros(1, 3, 5))
    >>> edges.tolist()
    [[[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]]
    >>> graph(torch.ones(1, 3, 4), edges, steps=2).shape
    torch.Size([1, 3, 4])
    """

    __call__: Callable[..., Tensor]
    _no_loops: Tensor

    def __init__(self, n: int, k: int, width: int) -> None:
        super().__init__()
        self.n, self.width = n, width
        self.ends = Linear(k, 2, bias=False)  # both halves of the vector by which two embeddings decide an edge
        self.transforms = nn.Parameter(torch.zeros(2, n, width, width))  # W_out and W_in of every node
        self.offset = nn.Parameter(torch.zeros(width))
        self.gates = Linear(2 * width, 2 * width)
        self.candidate = Linear(2 * width, width)
        self.register_buffer("_no_loops", torch.full((n,), -math.inf).diag(), persistent=False)

    def draw(self, source: torch.Generator) -> None:
        """Draw the nodes' matrices as linear layers'."""
        fill_normal(self.transforms, math.sqrt(1 / self.width), source)

    def edges(self, embeddings: Tensor) -> Tensor:
        """Give the weights A [rows, n, n] by which each node (the row) hears the others: softmax, without itself."""
        here, there = self.ends(embeddings).unbind(2)
        return torch.softmax(functional.leaky_relu(here[:, :, None] + there[:, None]) + self._no_loops, 2)

    def forward(self, first: Tensor, edges: Tensor, steps: int) -> Tensor:
        state, (out, into) = first, self.transforms
        for _ in range(steps):
            heard = edges @ torch.einsum("rnd,nde->rne", state, out)
            heard = torch.einsum("rnd,nde->rne", heard, into) + self.offset
            state = self._updated(state, heard) + first
        return state

    def _updated(self, state: Tensor, heard: Tensor) -> Tensor:
        """Update by a gated recurrent unit."""
        update, reset = torch.sigmoid(self.gates(torch.cat([heard, state], 2))).chunk(2, 2)
        new = torch.tanh(self.candidate(torch.cat([heard, reset * state], 2)))
        return state + update * (new - state)

    def flops(self, steps: int) -> int:
        """Count the operations of a row's matrix products."""
        step = 2 * (self.n * self.transforms[:, 0].numel() + self.n**2 * self.width)
        step += self.n * (self.gates.flops() + self.candidate.flops())
        return self.n * self.ends.flops() + steps * step
