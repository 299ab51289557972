"""FinalMLP calculates what its equations say."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, PAPER, counted_flops, small

from fm2.errors import Fm2Error
from fm2.models import build

GATES = {"gate_hidden": [5]}
SEEING = {**GATES, "first_gate": [2, 0], "second_gate": [1]}


def gated(parameters, e, place, fields):
    """Give 2 sigmoid(MLP(x)) ⊙ e."""
    x = torch.cat([e[field] for field in fields]) if fields else parameters[f"gates.{place}.vector"][0]
    g = perceptron(parameters, x, f"gates.{place}.mlp", layers=1)
    return 2 * torch.sigmoid(g) * torch.cat(e)


def finalmlp(model, parameters, e, row):
    fields = (model.config["first_gate"], model.config["second_gate"])
    one, other = (perceptron(parameters, gated(parameters, e, i, fields[i]), f"streams.{i}") for i in range(2))
    logit, heads = 0, model.config["fusion_heads"]
    first, second = (parameters[f"fusion.{key}"].chunk(heads) for key in ("first", "second"))
    for head, (o1, o2) in enumerate(zip(one.chunk(heads), other.chunk(heads), strict=True)):
        logit = logit + first[head] @ o1 + second[head] @ o2 + o1 @ parameters["fusion.weight"][head] @ o2
    return logit


@pytest.mark.parametrize("options", [GATES, SEEING, {**SEEING, "dims": OWN_DIMS, "fusion_heads": 2}])
def test_logits_and_gradients_are_those_of_the_equation(options):
    assert_follows(random_model("finalmlp", **options), finalmlp)


def test_a_gate_depends_on_its_own_fields_alone():
    model = random_model("finalmlp", dims=OWN_DIMS, **SEEING)
    V = torch.randn(7, sum(OWN_DIMS), dtype=torch.float64)
    first, second = (gate(V) / V for gate in model.gates)
    for weights in (first, second):
        assert ((weights > 0) & (weights < 2)).all()
    changed = V.clone()
    changed[:, 3:4] += 1  # field 1, which only the second gate sees
    torch.testing.assert_close(model.gates[0](changed) / changed, first)
    assert ((model.gates[1](changed) / changed - second).abs().amax(1) > 1e-3).all()


def test_a_gate_without_fields_has_the_same_weights_for_all_rows():
    model = random_model("finalmlp")
    V = torch.randn(7, 16, dtype=torch.float64)
    weights = model.gates[0](V) / V
    torch.testing.assert_close(weights, weights[:1].expand(7, -1))
    assert weights.std() > 0.01


@pytest.mark.parametrize("fields", [[], [0]])
def test_a_gate_may_have_a_single_number_to_weigh(fields):
    gate = random_model("finalmlp", field_sizes=[5], dims=1, first_gate=fields).gates[0]
    V = torch.randn(7, 1, dtype=torch.float64)
    torch.testing.assert_close(gate(V), torch.cat([gate(row) for row in V.split(1)]))


def test_one_head_of_a_block_matrix_is_many_heads():
    many, one = (random_model("finalmlp", fusion_heads=heads).fusion for heads in (4, 1))
    one.load_state_dict({**many.state_dict(), "weight": torch.block_diag(*many.weight.detach())[None]})
    streams = torch.randn(2, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(one(*streams), many(*streams))


def test_without_the_bilinear_form_the_streams_only_add_up():
    model = random_model("finalmlp")
    model.fusion.weight.data.zero_()
    a, b, c, d = torch.randn(4, 6, 8, dtype=torch.float64)
    fused = model.fusion
    torch.testing.assert_close(fused(a, c) - fused(b, c), fused(a, d) - fused(b, d))


def test_wrong_shapes_are_refused():
    with pytest.raises(Fm2Error, match="finalmlp: a stream's width 9 is not divided by its 4 fusion_heads"):
        small("finalmlp", second_hidden=[9])
    with pytest.raises(Fm2Error, match="finalmlp: a gate sees field 4; there are the fields 0 to 3"):
        small("finalmlp", second_gate=[1, 4])


def test_operations_are_those_that_torch_counts():
    """Torch counts matrix products alone: weighting is one per number of e, the fusion's sums 2 and 3 per unit.

    A gate that sees nothing is calculated once for all rows, not for each.
    """
    size = {**PAPER, "hidden": [200, 100], "second_hidden": [200], "gate_hidden": [64], "fusion_heads": 4}
    model = build({"model": "finalmlp", **size, "first_gate": [0], "second_gate": [1, 2]})
    streams = 2 * (624 * 200 + 200 * 100 + 624 * 200) + 2 * 25 * 200
    gates = 2 * (16 * 64 + 32 * 64 + 2 * 64 * 624)
    assert counted_flops(model) == streams + gates
    assert model.flops() == streams + gates + 2 * 624 + 2 * 100 + 3 * 200
    assert build({"model": "finalmlp", **size}).flops() == model.flops() - gates
