"""DCN: its equations."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, degree, perceptron, random_model
from tests.helpers.networks import OWN_DIMS


def equation(model, parameters, vectors):
    x = start = torch.cat(vectors)
    for w, b in zip(parameters["cross.weight"][:-1], parameters["cross.bias"], strict=True):
        x = torch.outer(start, x) @ w + b + x
    return parameters["cross.weight"][-1] @ x + perceptron(parameters, start)


@pytest.mark.parametrize("dims", [4, OWN_DIMS])
@pytest.mark.parametrize("cross_layers", [1, 2, 4])
def test_logits_and_gradients_follow_the_equation(dims, cross_layers):
    assert_follows(random_model("dcn", dims=dims, cross_layers=cross_layers), equation)


@pytest.mark.parametrize("cross_layers", [1, 2, 3, 5])
def test_every_cross_layer_raises_the_degree_by_one(cross_layers):
    assert degree(random_model("dcn", cross_layers=cross_layers, hidden=())) == cross_layers + 1
