"""The graph of fields in Fi-GNN: every field is a node, with an edge from every other field."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.models.deep.layers import Linear
from fm2.models.initial import fill_normal


class FieldGraph(nn.Module):
    """Gated updates of node states [rows, n, width] along edges that depend on embeddings [rows, n, K].

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
        self.n = n
        self.width = width
        self.ends = Linear(k, 2, bias=False)  # w of the edges, split into its halves for e_i and e_j
        self.transforms = nn.Parameter(torch.zeros(2, n, width, width))  # W_out and W_in of every node
        self.offset = nn.Parameter(torch.zeros(width))
        self.gates = Linear(2 * width, 2 * width)
        self.candidate = Linear(2 * width, width)
        self.register_buffer("_no_loops", torch.full((n,), -math.inf).diag(), persistent=False)

    def draw(self, source: torch.Generator) -> None:
        """Draw the initial matrices of the nodes like those of linear layers."""
        fill_normal(self.transforms, math.sqrt(1 / self.width), source)

    def edges(self, embeddings: Tensor) -> Tensor:
        """Return the edge weights A [rows, n, n]; row i holds the softmax over all nodes j ≠ i that send to node i."""
        receiver, sender = self.ends(embeddings).unbind(2)
        scores = functional.leaky_relu(receiver[:, :, None] + sender[:, None])
        return torch.softmax(scores + self._no_loops, 2)

    def forward(self, initial: Tensor, edges: Tensor, steps: int) -> Tensor:
        """Return the states [rows, n, width] after ``steps`` updates of the initial states."""
        w_out, w_in = self.transforms
        state = initial
        for _ in range(steps):
            received = edges @ torch.einsum("rnd,nde->rne", state, w_out)
            messages = torch.einsum("rnd,nde->rne", received, w_in) + self.offset
            state = self._gru(state, messages) + initial
        return state

    def _gru(self, state: Tensor, messages: Tensor) -> Tensor:
        """Apply a gated recurrent unit."""
        update, reset = torch.sigmoid(self.gates(torch.cat([messages, state], 2))).chunk(2, 2)
        candidate = torch.tanh(self.candidate(torch.cat([messages, reset * state], 2)))
        return state + update * (candidate - state)

    def flops(self, steps: int) -> int:
        """Return the number of operations per row in matrix products."""
        step = 2 * (self.n * self.transforms[:, 0].numel() + self.n**2 * self.width)
        step += self.n * (self.gates.flops() + self.candidate.flops())
        return self.n * self.ends.flops() + steps * step
