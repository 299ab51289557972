"""xDeepFM calculates what its equations say, though it leaves out what is not needed, and counts what it costs."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, degree, perceptron, random_model
from tests.helpers.networks import PAPER, SIZES, assert_exported, counted_flops, small

from fm2.errors import Fm2Error
from fm2.models import build

N = len(SIZES)
CASES = [([3], True), ([4, 3], True), ([4, 3], False), ([4, 6, 2], True), ([5, 4, 2, 3], True), ([3, 2, 4], False)]


def weights_of(parameters, layer, before):
    """Give Wᵏʰᵢⱼ as [h, i, j]: in the first layer a pair of fields has one weight, at i ≤ j."""
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
        made = [
            sum(weights[h, i, j] * (maps[i] * vectors[j]) for i in range(len(maps)) for j in range(N))
            for h in range(width)
        ]
        last = layer == len(widths) - 1
        pooled = made[width // 2 :] if split and not last else made
        maps = made[: width // 2] if split else made
        for w, one in zip(parameters[f"cin.layers.{layer}.output"], pooled, strict=True):
            logit = logit + w * one.sum()
    return logit


@pytest.mark.parametrize(("cin", "split"), CASES)
def test_logits_and_gradients_are_those_of_the_equation(cin, split):
    assert_follows(random_model("xdeepfm", cin=cin, cin_split=split), equation)


@pytest.mark.parametrize(("cin", "split"), CASES)
def test_every_layer_raises_the_degree_by_one(cin, split):
    assert degree(random_model("xdeepfm", cin=cin, cin_split=split, hidden=())) == len(cin) + 1


def test_products_are_vector_wise():
    """A coordinate of the embeddings meets no other: the logit is a sum of one function of each of them, the same."""
    cin = random_model("xdeepfm", cin=[6, 4, 2]).cin
    x = torch.randn(3, N, 4, dtype=torch.float64)
    apart = [cin(x[:, :, d : d + 1]) for d in range(4)]
    torch.testing.assert_close(cin(x), sum(apart))
    torch.testing.assert_close(cin(x[:, :, [2, 0, 3, 1]]), cin(x))


def test_no_layer_is_another_model():
    with pytest.raises(Fm2Error, match="xdeepfm: cin has no layer; what is left without any is widedeep"):
        small("xdeepfm", cin=())


def test_operations_are_those_that_torch_counts():
    """Torch counts matrix products alone, those of weights with weights too, which are the same for all rows.

    Beside them are the linear part, the products of embeddings and maps, and sums.
    """
    model = build({"model": "xdeepfm", **PAPER, "hidden": [200] * 3, "cin": [200] * 3})
    perceptron = 2 * (624 * 200 + 2 * 200**2 + 200)
    pairs, products = 39 * 40 // 2, 100 * 39
    matrices = 2 * 16 * (101 * pairs + 101 * products + products)
    of_weights = 2 * (100 * pairs + 100 * products + 200 * products)
    assert counted_flops(model, rows=8) == perceptron + matrices + of_weights / 8
    assert model.flops() == perceptron + matrices + 78 + 16 * (pairs + products + 2 * 100 + 3)


@pytest.mark.parametrize("cin", [(4,), (4, 6, 2)])
def test_fewer_and_more_layers_are_exported(cin):
    assert_exported(small("xdeepfm", cin=cin))
