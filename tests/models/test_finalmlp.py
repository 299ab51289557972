"""FinalMLP: its equations."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, small

from fm2.errors import Fm2Error

GATES = {"gate_hidden": [5]}
WITH_FIELDS = {**GATES, "first_gate": [2, 0], "second_gate": [1]}


def gated(parameters, e, index, fields):
    """Return 2 sigmoid(MLP(x)) ⊙ e."""
    x = torch.cat([e[field] for field in fields]) if fields else parameters[f"gates.{index}.vector"][0]
    g = perceptron(parameters, x, f"gates.{index}.mlp", layers=1)
    return 2 * torch.sigmoid(g) * torch.cat(e)


def finalmlp(model, parameters, e, row):
    fields = (model.config["first_gate"], model.config["second_gate"])
    one, other = (perceptron(parameters, gated(parameters, e, i, fields[i]), f"streams.{i}") for i in range(2))
    logit, heads = 0, model.config["fusion_heads"]
    first, second = (parameters[f"fusion.{key}"].chunk(heads) for key in ("first", "second"))
    for head, (o1, o2) in enumerate(zip(one.chunk(heads), other.chunk(heads), strict=True)):
        logit = logit + first[head] @ o1 + second[head] @ o2 + o1 @ parameters["fusion.weight"][head] @ o2
    return logit


@pytest.mark.parametrize("options", [GATES, WITH_FIELDS, {**WITH_FIELDS, "dims": OWN_DIMS, "fusion_heads": 2}])
def test_logits_and_gradients_follow_the_equation(options):
    assert_follows(random_model("finalmlp", **options), finalmlp)


def test_a_gate_depends_only_on_its_fields():
    model = random_model("finalmlp", dims=OWN_DIMS, **WITH_FIELDS)
    V = torch.randn(7, sum(OWN_DIMS), dtype=torch.float64)
    first, second = (gate(V) / V for gate in model.gates)
    for weights in (first, second):
        assert ((weights > 0) & (weights < 2)).all()
    changed = V.clone()
    changed[:, 3:4] += 1  # field 1, which only the second gate reads
    torch.testing.assert_close(model.gates[0](changed) / changed, first)
    assert ((model.gates[1](changed) / changed - second).abs().amax(1) > 1e-3).all()


def test_a_gate_without_fields_is_the_same_for_all_rows():
    model = random_model("finalmlp")
    V = torch.randn(7, 16, dtype=torch.float64)
    weights = model.gates[0](V) / V
    torch.testing.assert_close(weights, weights[:1].expand(7, -1))
    assert weights.std() > 0.01


@pytest.mark.parametrize("fields", [[], [0]])
def test_a_gate_can_have_a_single_output(fields):
    gate = random_model("finalmlp", field_sizes=[5], dims=1, first_gate=fields).gates[0]
    V = torch.randn(7, 1, dtype=torch.float64)
    torch.testing.assert_close(gate(V), torch.cat([gate(row) for row in V.split(1)]))


def test_many_heads_equal_one_head_with_a_block_diagonal_matrix():
    many, one = (random_model("finalmlp", fusion_heads=heads).fusion for heads in (4, 1))
    one.load_state_dict({**many.state_dict(), "weight": torch.block_diag(*many.weight.detach())[None]})
    streams = torch.randn(2, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(one(*streams), many(*streams))


def test_without_the_bilinear_term_the_streams_are_additive():
    model = random_model("finalmlp")
    model.fusion.weight.data.zero_()
    a, b, c, d = torch.randn(4, 6, 8, dtype=torch.float64)
    fused = model.fusion
    torch.testing.assert_close(fused(a, c) - fused(b, c), fused(a, d) - fused(b, d))


def test_wrong_shapes_raise_an_error():
    with pytest.raises(Fm2Error, match="finalmlp: the stream width 9 must be divisible by fusion_heads=4"):
        small("finalmlp", second_hidden=[9])
    with pytest.raises(Fm2Error, match="finalmlp: the fields of a gate must be between 0 and 3, got 4"):
        small("finalmlp", second_gate=[1, 4])
