"""DCN-V2 and GDCN calculate what their equations say, and count what it costs."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, degree, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, PAPER, assert_exported, counted_flops, small

from fm2.models import build

STRUCTURES = ["stacked", "parallel"]
PERCEPTRON = 2 * (624 * 200 + 2 * 200**2 + 200)


def mixture(layer, start, x, rank):
    """Give Σᵢ Gᵢ(x) (x₀ ⊙ (Uᵢ g(Cᵢ g(Vᵢᵀ x)) + b)); U and Vᵀ have the experts one below the other."""
    scores = layer["gate.weight"] @ x if "gate.weight" in layer else torch.zeros(1, dtype=x.dtype)
    gates = scores.exp() / scores.exp().sum()
    found = 0
    for i, core in enumerate(layer["core"]):
        rows = slice(i * rank, (i + 1) * rank)
        low = torch.tanh(core @ torch.tanh(layer["down"][rows] @ x))
        found = found + gates[i] * (start * (layer["up"][rows].T @ low + layer["bias"]))
    return found


def equation(model, parameters, vectors):
    x = start = torch.cat(vectors)
    for place in range(len(model.layers)):
        prefix = f"layers.{place}."
        layer = {key.removeprefix(prefix): value for key, value in parameters.items() if key.startswith(prefix)}
        if "core" in layer:
            added = mixture(layer, start, x, model.config["cross_rank"])
        else:
            added = start * (layer["matrix.weight"] @ x + layer["matrix.bias"])
            if model.name == "gdcn":
                added = added / (1 + torch.exp(-layer["gate.weight"] @ x))
        x = added + x
    if model.config["structure"] == "stacked":
        return perceptron(parameters, x)
    return parameters["last.weight"][0] @ x + perceptron(parameters, start)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("dims", [4, OWN_DIMS])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dcnv2", {}),
        ("dcnv2", {"cross_rank": 2, "experts": 3}),
        ("dcnv2", {"cross_rank": 3, "experts": 1}),
        ("gdcn", {}),
    ],
)
def test_logits_and_gradients_are_those_of_the_equation(name, options, dims, structure):
    model = random_model(name, dims=dims, cross_layers=2, structure=structure, **options)
    assert_follows(model, equation)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("cross_layers", [1, 2, 4])
def test_every_cross_layer_raises_the_degree_by_one(cross_layers, structure):
    model = random_model("dcnv2", cross_layers=cross_layers, structure=structure, hidden=())
    assert degree(model) == cross_layers + 1


def test_gates_that_are_half_open_leave_half_of_dcnv2():
    gated, plain = (random_model(name, cross_layers=1, hidden=()) for name in ("gdcn", "dcnv2"))
    plain.load_state_dict({key: value for key, value in gated.state_dict().items() if "gate" not in key})
    gated.layers[0].gate.weight.data.zero_()
    plain.layers[0].matrix.weight.data /= 2
    plain.layers[0].matrix.bias.data /= 2
    x = torch.randn(5, gated.embedding.width, dtype=torch.float64)
    torch.testing.assert_close(gated.network(x), plain.network(x))


def test_gates_choose_between_experts_and_add_nothing():
    """Where all experts are alike, it makes no difference how they are mixed."""
    model = random_model("dcnv2", cross_layers=1, cross_rank=2, experts=3)
    layer = model.layers[0]
    x = torch.randn(5, model.embedding.width, dtype=torch.float64)

    def change_by_gates():
        before = model.network(x)
        layer.gate.weight.data *= -1
        return (model.network(x) - before).abs().max()

    assert change_by_gates() > 0.1
    for matrices in (layer.down, layer.core, layer.up):
        experts = matrices.data.view(3, 2, -1)
        experts[1:] = experts[0]
    assert change_by_gates() < 1e-10


@pytest.mark.parametrize("structure", STRUCTURES)
def test_operations_are_those_that_torch_counts(structure):
    """Torch counts matrix products alone: beside them are two or three operations per element, one per gated one."""
    size = {**PAPER, "hidden": [200] * 3, "cross_layers": 3, "structure": structure}
    output = 2 * 624 if structure == "parallel" else 0
    plain, gated = (build({"model": name, **size}) for name in ("dcnv2", "gdcn"))
    mixed, single = (build({"model": "dcnv2", **size, "cross_rank": 64, "experts": experts}) for experts in (4, 1))
    assert counted_flops(plain) == PERCEPTRON + output + 3 * 2 * 624**2
    assert plain.flops() == counted_flops(plain) + 3 * 2 * 624
    assert counted_flops(gated) == PERCEPTRON + output + 3 * 4 * 624**2
    assert gated.flops() == counted_flops(gated) + 3 * 3 * 624
    assert counted_flops(single) == PERCEPTRON + output + 3 * 2 * (2 * 624 * 64 + 64**2)
    assert single.flops() == counted_flops(single) + 3 * 2 * 624
    assert counted_flops(mixed) == PERCEPTRON + output + 3 * 2 * 4 * (2 * 624 * 64 + 64**2 + 624)
    assert mixed.flops() == counted_flops(mixed) + 3 * (2 * 624 + 4 * 64)


def test_mixtures_are_exported():
    assert_exported(small("dcnv2", cross_rank=2, experts=3, structure="stacked"))
