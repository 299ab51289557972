"""MaskNet calculates what its equations say: masks of the row's own, in series or side by side."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, layer, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, PAPER, counted_flops, small

from fm2.models import build

ARRANGEMENTS = ["parallel", "serial"]
BLOCKS = {"mask_blocks": [5, 6, 3], "mask_ratio": 0.7, "norm_epsilon": 0.3}


def normalized(x, weight, bias, epsilon=1e-5):
    return weight * (x - x.mean()) / torch.sqrt(x.var(correction=0) + epsilon) + bias


def literal(model, p, vectors):
    """Give a row's logit without the bias."""
    v, starts = torch.cat(vectors), model.embedding.starts
    parts = [slice(start, start + len(vector)) for start, vector in zip(starts, vectors, strict=True)]
    by_field = [
        normalized(vector, p["norm.weight"][at], p["norm.bias"][at], 0.3)
        for vector, at in zip(vectors, parts, strict=True)
    ]
    x, outputs = torch.cat(by_field), []
    for i in range(3):
        mask = layer(p, f"blocks.{i}.project", torch.relu(layer(p, f"blocks.{i}.aggregate", v)))
        hidden = p[f"blocks.{i}.layer.weight"] @ (mask * x)
        output = torch.relu(normalized(hidden, p[f"blocks.{i}.norm.weight"], p[f"blocks.{i}.norm.bias"]))
        outputs.append(output)
        x = output if model.serial else x
    return perceptron(p, output if model.serial else torch.cat(outputs))


@pytest.mark.parametrize("dims", [[4] * 4, OWN_DIMS])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_logits_and_gradients_are_those_of_the_equation(arrangement, dims):
    assert_follows(random_model("masknet", dims=dims, arrangement=arrangement, **BLOCKS), literal)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_mask_of_ones_leaves_layers_and_normalizations(arrangement):
    """What remains is blind to how large a field's embedding is; the masks alone see it."""
    model = small("masknet", arrangement=arrangement, **BLOCKS).double()
    v = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100
    larger = v * torch.tensor([2.0, 3.0, 1.0, 5.0]).repeat_interleave(4)
    assert not torch.allclose(model.network(v), model.network(larger), rtol=1e-2)
    for block in model.blocks:
        block.project.weight.data.zero_()
        block.project.bias.data.fill_(1)
    torch.testing.assert_close(model.network(v), model.network(larger), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("arrangement", "alike"), [("parallel", True), ("serial", False)])
def test_parallel_blocks_are_alike_and_serial_ones_are_in_order(arrangement, alike):
    """Blocks in another order, and the columns of what reads them too, are the same model if they are parallel."""
    model = small("masknet", arrangement=arrangement, mask_blocks=[16, 16], hidden=[4])
    v = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    before = model.network(v)
    model.blocks = model.blocks[::-1]
    if alike:
        model.mlp.layers[0].weight.data = model.mlp.layers[0].weight.data.roll(16, 1)
    assert torch.allclose(model.network(v), before, rtol=1e-4, atol=1e-6) == alike


def test_without_blocks_it_is_a_perceptron_of_normalized_embeddings():
    for arrangement in ARRANGEMENTS:
        model = small("masknet", arrangement=arrangement, mask_blocks=[])
        v = torch.ones(2, 16)
        torch.testing.assert_close(model.network(v), model.mlp(model.norm(v)))


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_operations_are_those_that_torch_counts(arrangement):
    """Torch counts matrix products alone: other operations are beside them, and means by products are counted."""
    sizes = {"mask_blocks": [64, 32], "hidden": [8], "mask_ratio": 0.5}
    model = build({"model": "masknet", **PAPER, "arrangement": arrangement, **sizes})
    beside = 78 + 2 * 624 + (624 + 2 * 64) + ((64 if model.serial else 624) + 2 * 32)
    means = 4 * 2 * 624 * 39
    assert model.flops() - beside == counted_flops(model) - means
