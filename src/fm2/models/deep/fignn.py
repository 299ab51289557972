"""Fi-GNN (Li et al., "Fi-GNN: modeling feature interactions via graph neural networks for CTR prediction", 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from fm2.errors import Fm2Error
from fm2.models.deep.attention import FieldAttention
from fm2.models.deep.base import DeepModel
from fm2.models.deep.graph import FieldGraph
from fm2.models.deep.layers import Linear


class FiGNN(DeepModel):
    """Every field is a node of a graph, complete but for loops; its state hears the others' along weighted edges.

    - First states: h¹ = relu(H₁ ⊕ ... ⊕ H_heads + E W_R), H = softmax(Q Kᵀ / √d) V by self-attention of the embeddings
      E. The residual is in the authors' program; without it all states would begin nearly equal.
    - Edges: A_ij = exp(leaky_relu(wᵀ[e_i ‖ e_j])) / Σ_{k ≠ i} exp(leaky_relu(wᵀ[e_i ‖ e_k])), and A_ii = 0.
    - What a node hears: a_i = W_in^i Σ_j A_ij W_out^j h_j + b; a matrix for every edge, at the cost of two per node.
    - Its next state: h_i ← GRU(h_i, a_i) + h¹_i, ``graph_steps`` times.
    - Logit: Σ_i α_i ŷ_i, with ŷ_i = uᵀh_i a score of every field (its leaky_relu in the authors' program), and α_i its
      weight: with ``field_weights=own``, as the authors have it, α_i = sigmoid(u'ᵀh_i); with ``all``, α = sigmoid(U
      [h_1 ‖ ... ‖ h_n]), where fields may differ in what their states mean.

    >>> model = FiGNN([10, 20, 5], dims=4, attention_heads=2, attention_dim=3)
    >>> graph = 2 * 4 + 2 * 3 * 6 * 6 + 6 + (12 * 12 + 12) + (12 * 6 + 6)
    >>> model.n_parameters == 35 * 4 + 4 * 4 * 6 + graph + 6 + 3 * (3 * 6)
    True
    """

    wide = False

    def assemble(self, graph_steps: int, attention_heads: int, attention_dim: int, field_weights: str) -> None:
        n, width = len(self.dims), attention_heads * attention_dim
        if n < 2:
            raise Fm2Error("fignn: a graph without loops needs two fields; there is one")
        self.steps = graph_steps
        self.attention = FieldAttention(self.dims[0], attention_heads, attention_dim, scale=attention_dim**-0.5)
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
        """Count the floating point operations of one prediction: attention, graph, and the products of the output."""
        n = len(self.dims)
        last = n * self.scores.flops() + (n if self.own else 1) * self.weights.flops()
        return self.attention.flops(n) + self.graph.flops(self.steps) + last
