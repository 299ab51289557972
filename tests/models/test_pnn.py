"""IPNN and OPNN: their equations."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import SIZES

from fm2.errors import Fm2Error
from fm2.models import build
from fm2.models.deep.products import InnerProducts

PAIRS = list(itertools.combinations(range(len(SIZES)), 2))


def kernel(parameters, i, j):
    """Return the kernel of a pair; the kernels of its first field are concatenated."""
    n, k = len(SIZES), 4
    begin = sum((n - 1 - first) * k * k for first in range(i))
    kernels = parameters["kernels.weight"][begin : begin + (n - 1 - i) * k * k].view(k, (n - 1 - i) * k)
    return kernels[:, (j - i - 1) * k :][:, :k]


def ipnn(model, parameters, f, row):
    products = [sum(f[i][a] * f[j][a] for a in range(4)) for i, j in PAIRS]
    return perceptron(parameters, torch.cat([*f, torch.stack(products)]))


def opnn_of_sums(model, parameters, f, row):
    """Sum all n² outer products one by one."""
    p = sum(torch.outer(one, other) for one in f for other in f)
    return perceptron(parameters, torch.cat([*f, p.reshape(-1)]))


def opnn_of_pairs(model, parameters, f, row):
    products = [(kernel(parameters, i, j) * torch.outer(f[i], f[j])).sum() for i, j in PAIRS]
    return perceptron(parameters, torch.cat([*f, torch.stack(products)]))


@pytest.mark.parametrize(
    ("name", "options", "equation"),
    [
        ("ipnn", {}, ipnn),
        ("opnn", {"outer": "sum"}, opnn_of_sums),
        ("opnn", {"outer": "pairs"}, opnn_of_pairs),
    ],
)
def test_logits_and_gradients_follow_the_equation(name, options, equation):
    assert_follows(random_model(name, **options), equation)


def test_inner_products_are_symmetric():
    f = torch.randn(5, 4, 3, dtype=torch.float64)
    products = InnerProducts(4, 3)
    order = torch.tensor([2, 0, 3, 1])
    permuted = [PAIRS.index(tuple(sorted((int(order[i]), int(order[j]))))) for i, j in PAIRS]
    torch.testing.assert_close(products(f[:, order]), products(f)[:, permuted])


def test_only_kernels_depend_on_the_order_of_fields():
    V = torch.randn(5, 16, dtype=torch.float64)
    permuted = V.view(5, 4, 4).flip(1).reshape(5, 16)
    summed, paired = (random_model("opnn", outer=outer).products for outer in ("sum", "pairs"))
    torch.testing.assert_close(summed(permuted), summed(V))
    assert (paired(permuted) - paired(V)).abs().amax() > 0.1


def test_identity_kernels_yield_inner_products():
    model, V = random_model("opnn", outer="pairs"), torch.randn(5, 16, dtype=torch.float64)
    with torch.no_grad():
        model.kernels.weight.copy_(torch.cat([torch.eye(4).repeat(1, 3 - i).view(-1) for i in range(3)]))
    torch.testing.assert_close(model.products(V), InnerProducts(4, 4)(V.view(5, 4, 4)))


def test_pairs_require_two_fields():
    with pytest.raises(Fm2Error, match="Bilinear: products of pairs require at least 2 fields, got 1"):
        build({"model": "opnn", "field_sizes": [5], "outer": "pairs"})
    assert build({"model": "ipnn", "field_sizes": [5]})(torch.tensor([[1]])).shape == (1,)
