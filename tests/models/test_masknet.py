"""MaskNet: its equations in both arrangements."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, layer, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, small

ARRANGEMENTS = ["parallel", "serial"]
BLOCKS = {"mask_blocks": [5, 6, 3], "mask_ratio": 0.7, "norm_epsilon": 0.3}


def normalized(x, weight, bias, epsilon=1e-5):
    return weight * (x - x.mean()) / torch.sqrt(x.var(correction=0) + epsilon) + bias


def literal(model, p, vectors):
    """Return a row's logit without the bias."""
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
def test_logits_and_gradients_follow_the_equation(arrangement, dims):
    assert_follows(random_model("masknet", dims=dims, arrangement=arrangement, **BLOCKS), literal)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_only_masks_depend_on_the_scale_of_an_embedding(arrangement):
    """With masks of ones, the normalized embeddings do not depend on the scale."""
    model = small("masknet", arrangement=arrangement, **BLOCKS).double()
    v = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100
    larger = v * torch.tensor([2.0, 3.0, 1.0, 5.0]).repeat_interleave(4)
    assert not torch.allclose(model.network(v), model.network(larger), rtol=1e-2)
    for block in model.blocks:
        block.project.weight.data.zero_()
        block.project.bias.data.fill_(1)
    torch.testing.assert_close(model.network(v), model.network(larger), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("arrangement", "interchangeable"), [("parallel", True), ("serial", False)])
def test_only_parallel_blocks_are_interchangeable(arrangement, interchangeable):
    """Swapped parallel blocks, with swapped columns of the next layer, are the same model."""
    model = small("masknet", arrangement=arrangement, mask_blocks=[16, 16], hidden=[4])
    v = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    before = model.network(v)
    model.blocks = model.blocks[::-1]
    if interchangeable:
        model.mlp.layers[0].weight.data = model.mlp.layers[0].weight.data.roll(16, 1)
    assert torch.allclose(model.network(v), before, rtol=1e-4, atol=1e-6) == interchangeable


def test_without_blocks_the_model_is_a_perceptron_of_normalized_embeddings():
    for arrangement in ARRANGEMENTS:
        model = small("masknet", arrangement=arrangement, mask_blocks=[])
        v = torch.randn(2, 16)
        normalized = torch.nn.functional.layer_norm(v.view(2, 4, 4), [4], eps=model.norm.epsilon).view(2, 16)
        torch.testing.assert_close(model.network(v), model.mlp(normalized))
