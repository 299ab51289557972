"""Fi-GNN (Li et al., "Fi-GNN: modeling feature interactions via graph neural networks for CTR prediction", 2019)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fm2.errors import Fm2Error
from fm2.models.deep.attention import FieldAttention
from fm2.models.deep.base import DeepModel
from fm2.models.deep.layers import Layer, Linear
from fm2.models.initial import fill_normal


class FieldGraph(Layer):
    """Gated updates of node states [rows, n, width] along edges that depend on embeddings [rows, n, K]."""

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


class FiGNN(DeepModel):
    """A gated graph neural network whose nodes are the fields; every node has an edge to every other (Li et al., 2019).

    - Initial states: h¹ = relu(H₁ ⊕ ... ⊕ H_heads + E W_R), with self-attention H = softmax(Q Kᵀ / √d) V of the
      embeddings E. The residual E W_R is part of the authors' code; without it, all initial states are nearly equal.
    - Edges: A_ij = exp(leaky_relu(wᵀ[e_i ‖ e_j])) / Σ_{k ≠ i} exp(leaky_relu(wᵀ[e_i ‖ e_k])), and A_ii = 0.
    - Messages: a_i = W_in^i Σ_j A_ij W_out^j h_j + b. Every edge has its own matrix W_in^i W_out^j.
    - Updates: h_i ← GRU(h_i, a_i) + h¹_i, ``graph_steps`` times.
    - Logit: Σ_i α_i ŷ_i, with the score ŷ_i = uᵀh_i of each field (leaky_relu(uᵀh_i) in the authors' code) and its
      weight α_i. With ``field_weights="own"``, as in the authors' code, α_i = sigmoid(u'ᵀh_i). With ``"all"``, α =
      sigmoid(U [h_1 ‖ ... ‖ h_n]), so that the states of different fields can have different meanings.

    >>> model = FiGNN([10, 20, 5], dims=4, attention_heads=2, attention_dim=3)
    >>> graph = 2 * 4 + 2 * 3 * 6 * 6 + 6 + (12 * 12 + 12) + (12 * 6 + 6)
    >>> model.n_parameters == 35 * 4 + 4 * 4 * 6 + graph + 6 + 3 * (3 * 6)
    True
    """

    wide = False

    def assemble(self, graph_steps: int, attention_heads: int, attention_dim: int, field_weights: str) -> None:
        n, width = len(self.dims), attention_heads * attention_dim
        if n < 2:
            raise Fm2Error(f"fignn: expected at least 2 fields, got {n}; a graph of one field has no edges")
        self.steps = graph_steps
        self.attention = FieldAttention(n, self.dims[0], attention_heads, attention_dim, scale=attention_dim**-0.5)
        self.graph = FieldGraph(n, self.dims[0], width)
        self.scores = Linear(width, 1, bias=False)
        self.own = field_weights == "own"
        self.weights = Linear(width, 1, bias=False) if self.own else Linear(n * width, n, bias=False)

    def network(self, embedding: Tensor) -> Tensor:
        fields = self.by_field(embedding)
        state = self.graph(self.attention(fields), self.graph.edges(fields), steps=self.steps)
        weights = self.weights(state).squeeze(2) if self.own else self.weights(state.flatten(1))
        return torch.sum(torch.sigmoid(weights) * self.scores(state).squeeze(2), 1)

    def flops(self) -> int:
        """Return the number of operations per prediction: attention, graph, and the output's products."""
        n = len(self.dims)
        output = n * self.scores.flops() + (n if self.own else 1) * self.weights.flops()
        return self.attention.flops() + self.graph.flops(self.steps) + output
