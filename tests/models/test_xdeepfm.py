"""xDeepFM: its equations."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, degree, perceptron, random_model
from tests.helpers.networks import SIZES, assert_exported, small

from fm2.errors import Fm2Error

N = len(SIZES)
CASES = [([3], True), ([4, 3], True), ([4, 3], False), ([4, 6, 2], True), ([5, 4, 2, 3], True), ([3, 2, 4], False)]


def weights_of(parameters, layer, before):
    """Return Wᵏʰᵢⱼ as [h, i, j]; in the first layer, a pair of fields has one weight, at i ≤ j."""
    weight = parameters[f"cin.layers.{layer}.weight"]
    if layer:
        return weight.view(-1, before, N)
    i, j = torch.triu_indices(N, N)
    return torch.zeros(len(weight), N, N, dtype=weight.dtype).index_put(
        (torch.arange(len(weight))[:, None], i, j), weight
    )


def equation(model, parameters, vectors):
    maps, logit = vectors, perceptron(parameters, torch.cat(vectors))
    widths, split = model.config["cin"], model.config["cin_split"]
    for layer, width in enumerate(widths):
        weights = weights_of(parameters, layer, len(maps))
        outputs = [
            sum(weights[h, i, j] * (maps[i] * vectors[j]) for i in range(len(maps)) for j in range(N))
            for h in range(width)
        ]
        last = layer == len(widths) - 1
        pooled = outputs[width // 2 :] if split and not last else outputs
        maps = outputs[: width // 2] if split else outputs
        for w, one in zip(parameters[f"cin.layers.{layer}.output"], pooled, strict=True):
            logit = logit + w * one.sum()
    return logit


@pytest.mark.parametrize(("cin", "split"), CASES)
def test_logits_and_gradients_follow_the_equation(cin, split):
    assert_follows(random_model("xdeepfm", cin=cin, cin_split=split), equation)


@pytest.mark.parametrize(("cin", "split"), CASES)
def test_every_cin_layer_raises_the_degree_by_one(cin, split):
    assert degree(random_model("xdeepfm", cin=cin, cin_split=split, hidden=())) == len(cin) + 1


def test_products_are_vector_wise():
    """Coordinates do not mix: the logit is the sum of the same function of each coordinate."""
    cin = random_model("xdeepfm", cin=[6, 4, 2]).cin
    x = torch.randn(3, N, 4, dtype=torch.float64)
    by_coordinate = [cin(x[:, :, d : d + 1]) for d in range(4)]
    torch.testing.assert_close(cin(x), sum(by_coordinate))
    torch.testing.assert_close(cin(x[:, :, [2, 0, 3, 1]]), cin(x))


def test_no_cin_layer_raises_an_error():
    with pytest.raises(Fm2Error, match="xdeepfm: cin is empty; use widedeep for a model without CIN layers"):
        small("xdeepfm", cin=())


@pytest.mark.parametrize("cin", [(4,), (4, 6, 2)])
def test_one_and_three_layers_can_be_exported(cin):
    assert_exported(small("xdeepfm", cin=cin))
