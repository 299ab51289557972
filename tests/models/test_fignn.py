"""Fi-GNN: its equations, on a graph without loops."""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers.equations import assert_follows, random_model
from tests.helpers.networks import small

from fm2.errors import Fm2Error

HEADS, DIM = 2, 3
OPTIONS = {"attention_heads": HEADS, "attention_dim": DIM, "graph_steps": 2}


def attended(weight, e):
    """Return the initial states; ``weight`` holds the matrices of queries, keys, values and residuals of all heads."""
    parts = weight.view(4, HEADS, DIM, -1)
    states = []
    for one in e:
        state = []
        for head in range(HEADS):
            W_q, W_k, W_v, W_r = parts[:, head]
            powers = [torch.exp((W_q @ one) @ (W_k @ other) / math.sqrt(DIM)) for other in e]
            attended_values = sum(power * (W_v @ other) for power, other in zip(powers, e, strict=True)) / sum(powers)
            state.append(torch.relu(attended_values + W_r @ one))
        states.append(torch.cat(state))
    return states


def edge_weights(ends, e):
    w = ends.reshape(-1)
    powers = [[torch.exp(leaky(w @ torch.cat([one, other]))) for other in e] for one in e]
    n = range(len(e))
    return [[powers[i][j] / sum(powers[i][k] for k in n if k != i) if j != i else 0 for j in n] for i in n]


def leaky(x):
    return x if x > 0 else 0.01 * x


def gru(parameters, h, a):
    """Apply a gated recurrent unit with matrices W for the message ``a`` and U for the state."""
    width = len(h)
    gates, candidate = parameters["graph.gates.weight"], parameters["graph.candidate.weight"]
    b_z, b_r = parameters["graph.gates.bias"].split(width)
    W_z, U_z = gates[:width].split(width, 1)
    W_r, U_r = gates[width:].split(width, 1)
    W_h, U_h = candidate.split(width, 1)
    z = torch.sigmoid(W_z @ a + U_z @ h + b_z)
    r = torch.sigmoid(W_r @ a + U_r @ h + b_r)
    new = torch.tanh(W_h @ a + U_h @ (r * h) + parameters["graph.candidate.bias"])
    return (1 - z) * h + z * new


def fignn(model, parameters, e, row):
    first = attended(parameters["attention.weight"], e)
    A = edge_weights(parameters["graph.ends.weight"], e)
    out, into = parameters["graph.transforms"]
    h, n = first, range(len(e))
    for _ in range(model.config["graph_steps"]):
        messages = [sum(A[i][j] * (h[j] @ out[j] @ into[i]) for j in n) + parameters["graph.offset"] for i in n]
        h = [gru(parameters, h[i], messages[i]) + first[i] for i in n]
    score, weights = parameters["scores.weight"][0], parameters["weights.weight"]
    if model.config["field_weights"] == "own":
        alpha = [torch.sigmoid(weights[0] @ h[i]) for i in n]
    else:
        alpha = [torch.sigmoid(weights[i] @ torch.cat(h)) for i in n]
    return sum(alpha[i] * (score @ h[i]) for i in n)


@pytest.mark.parametrize("field_weights", ["own", "all"])
def test_logits_and_gradients_follow_the_equation(field_weights):
    assert_follows(random_model("fignn", **OPTIONS, field_weights=field_weights), fignn)


def test_edge_weights_of_a_receiver_sum_to_one_without_loops():
    graph = random_model("fignn", **OPTIONS).graph
    edges = graph.edges(torch.randn(20, 4, 4, dtype=torch.float64))
    torch.testing.assert_close(edges.sum(2), torch.ones(20, 4, dtype=torch.float64))
    assert not edges.diagonal(dim1=1, dim2=2).any()
    assert (edges + torch.eye(4) > 0).all()
    assert (edges - edges.transpose(1, 2)).abs().amax() > 0.01  # edges are directed


def test_edges_are_equivariant_to_the_order_of_fields_but_every_node_has_its_own_matrices():
    graph = random_model("fignn", **OPTIONS).graph
    e, order = torch.randn(5, 4, 4, dtype=torch.float64), torch.tensor([2, 0, 3, 1])
    states = torch.randn(5, 4, HEADS * DIM, dtype=torch.float64)
    edges, permuted = graph.edges(e), graph.edges(e[:, order])
    torch.testing.assert_close(permuted, edges[:, order][:, :, order])
    assert (graph(states[:, order], permuted, 1) - graph(states, edges, 1)[:, order]).abs().amax() > 0.01
    graph.transforms.data = graph.transforms.data[:, :1].expand(-1, 4, -1, -1)
    torch.testing.assert_close(graph(states[:, order], permuted, 2), graph(states, edges, 2)[:, order])


def test_a_node_does_not_receive_its_own_message():
    """In one step, a change of a node's outgoing matrix changes all other nodes, but not the node itself."""
    graph = random_model("fignn", **OPTIONS).graph
    states = torch.randn(3, 4, HEADS * DIM, dtype=torch.float64)
    edges = graph.edges(torch.randn(3, 4, 4, dtype=torch.float64))
    before = graph(states, edges, 1)
    graph.transforms.data[0, 2] += 1  # the outgoing matrix of field 2
    moved = (graph(states, edges, 1) - before).abs().amax((0, 2))
    assert moved[2] == 0
    assert (moved[[0, 1, 3]] > 0).all()


def test_a_single_field_raises_an_error():
    with pytest.raises(Fm2Error, match="fignn: expected at least 2 fields, got 1; a graph of one field has no edges"):
        small("fignn", field_sizes=[5])
