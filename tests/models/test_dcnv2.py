"""DCN-V2 and GDCN: their equations and options."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, degree, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, assert_exported, small

from fm2.artifacts.settings import Settings
from fm2.errors import Fm2Error
from fm2.training.construction import make_model

STRUCTURES = ["stacked", "parallel"]


def mixture(layer, start, x, rank):
    """Return Σᵢ Gᵢ(x) (x₀ ⊙ (Uᵢ g(Cᵢ g(Vᵢᵀ x)) + b)); U and Vᵀ contain the experts one below the other."""
    scores = layer["gate.weight"] @ x if "gate.weight" in layer else torch.zeros(1, dtype=x.dtype)
    gates = scores.exp() / scores.exp().sum()
    total = 0
    for i, core in enumerate(layer["core"]):
        rows = slice(i * rank, (i + 1) * rank)
        low = torch.tanh(core @ torch.tanh(layer["down"][rows] @ x))
        total = total + gates[i] * (start * (layer["up"][rows].T @ low + layer["bias"]))
    return total


def equation(model, parameters, vectors):
    x = start = torch.cat(vectors)
    for index in range(len(model.layers)):
        prefix = f"layers.{index}."
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
def test_logits_and_gradients_follow_the_equation(name, options, dims, structure):
    model = random_model(name, dims=dims, cross_layers=2, structure=structure, **options)
    assert_follows(model, equation)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("cross_layers", [1, 2, 4])
def test_every_cross_layer_raises_the_degree_by_one(cross_layers, structure):
    model = random_model("dcnv2", cross_layers=cross_layers, structure=structure, hidden=())
    assert degree(model) == cross_layers + 1


def test_half_open_gates_halve_the_cross_term():
    gated, plain = (random_model(name, cross_layers=1, hidden=()) for name in ("gdcn", "dcnv2"))
    plain.load_state_dict({key: value for key, value in gated.state_dict().items() if "gate" not in key})
    gated.layers[0].gate.weight.data.zero_()
    plain.layers[0].matrix.weight.data /= 2
    plain.layers[0].matrix.bias.data /= 2
    x = torch.randn(5, gated.embedding.width, dtype=torch.float64)
    torch.testing.assert_close(gated.network(x), plain.network(x))


def test_gates_only_mix_experts():
    """If all experts are equal, the gates make no difference."""
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


def test_mixtures_can_be_exported():
    assert_exported(small("dcnv2", cross_rank=2, experts=3, structure="stacked"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experts": 3}, "dcnv2: experts=3 requires cross_rank; layers with full matrices have no experts"),
        (
            {"cross_rank": 17},
            "dcnv2: cross_rank must be at most 16, the sum of the fields' dimensions, got 17; cross_rank=0",
        ),
    ],
)
def test_options_without_effect_raise_an_error(options, message):
    with pytest.raises(Fm2Error, match=message):
        small("dcnv2", **options)
    with pytest.raises(Fm2Error, match=message):
        make_model(Settings.of("dcnv2", dim=4, **options), [5] * 4)


def test_the_largest_rank_is_the_width_of_the_embeddings():
    assert small("dcnv2", cross_rank=16).layers[0].core.shape == (4, 16, 16)
