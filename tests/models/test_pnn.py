"""IPNN and OPNN calculate what their equations say."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import PAPER, SIZES, counted_flops

from fm2.errors import Fm2Error
from fm2.models import build
from fm2.models.deep.products import InnerProducts

PAIRS = list(itertools.combinations(range(len(SIZES)), 2))
SIZE = {**PAPER, "hidden": [200] * 3}


def perceptron_flops(inputs: int) -> int:
    return 2 * (inputs * 200 + 2 * 200**2 + 200)


def kernel(parameters, i, j):
    """Give the matrix of a pair: those of a first field lie side by side."""
    n, k = len(SIZES), 4
    begin = sum((n - 1 - first) * k * k for first in range(i))
    beside = parameters["kernels.weight"][begin : begin + (n - 1 - i) * k * k].view(k, (n - 1 - i) * k)
    return beside[:, (j - i - 1) * k :][:, :k]


def ipnn(model, parameters, f, row):
    products = [sum(f[i][a] * f[j][a] for a in range(4)) for i, j in PAIRS]
    return perceptron(parameters, torch.cat([*f, torch.stack(products)]))


def opnn_of_sums(model, parameters, f, row):
    """All n² outer products, one by one."""
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
def test_logits_and_gradients_are_those_of_the_equation(name, options, equation):
    assert_follows(random_model(name, **options), equation)


def test_inner_products_do_not_depend_on_which_field_comes_first():
    f = torch.randn(5, 4, 3, dtype=torch.float64)
    products = InnerProducts(4)
    order = torch.tensor([2, 0, 3, 1])
    places = [PAIRS.index(tuple(sorted((int(order[i]), int(order[j]))))) for i, j in PAIRS]
    torch.testing.assert_close(products(f[:, order]), products(f)[:, places])


def test_the_sum_of_outer_products_does_not_depend_on_the_order_of_fields_but_kernels_do():
    V = torch.randn(5, 16, dtype=torch.float64)
    turned = V.view(5, 4, 4).flip(1).reshape(5, 16)
    summed, paired = (random_model("opnn", outer=outer).products for outer in ("sum", "pairs"))
    torch.testing.assert_close(summed(turned), summed(V))
    assert (paired(turned) - paired(V)).abs().amax() > 0.1


def test_with_identities_for_kernels_the_outer_form_is_the_inner_one():
    model, V = random_model("opnn", outer="pairs"), torch.randn(5, 16, dtype=torch.float64)
    with torch.no_grad():
        model.kernels.weight.copy_(torch.cat([torch.eye(4).repeat(1, 3 - i).view(-1) for i in range(3)]))
    torch.testing.assert_close(model.products(V), InnerProducts(4)(V.view(5, 4, 4)))


def test_pairs_need_two_fields():
    with pytest.raises(Fm2Error, match="pairs of fields need two fields; there is one"):
        build({"model": "opnn", "field_sizes": [5], "outer": "pairs"})
    assert build({"model": "ipnn", "field_sizes": [5]})(torch.tensor([[1]])).shape == (1,)


def test_operations_are_those_that_torch_counts():
    """Torch counts all n² inner products, and matrix products alone: sums and products of elements are beside them."""
    inner, outer, pairs = (
        build({"model": "ipnn", **SIZE}),
        *(build({"model": "opnn", **SIZE, "outer": how}) for how in ("sum", "pairs")),
    )
    assert inner.flops() == perceptron_flops(624 + 741) + 2 * 16 * 741
    assert counted_flops(inner) == perceptron_flops(624 + 741) + 2 * 16 * 39**2
    assert counted_flops(outer) == perceptron_flops(624 + 256)
    assert outer.flops() == perceptron_flops(624 + 256) + 624 + 256
    assert counted_flops(pairs) == perceptron_flops(624 + 741) + 2 * 741 * 256
    assert pairs.flops() == counted_flops(pairs) + 2 * 741 * 16
