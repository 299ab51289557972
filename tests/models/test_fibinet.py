"""FiBiNET calculates what its equations say."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.network_formulas import FORMULAS
from tests.helpers.networks import OWN_DIMS, PAPER, SIZES, counted_flops, small

from fm2.errors import Fm2Error
from fm2.models import build
from fm2.models.deep.products import Bilinear

KINDS = ("all", "each", "interaction")


def matrix(weight, kind, dims, i, j):
    """Give the W of a pair of fields."""
    if kind != "interaction":
        return weight if kind == "all" else weight[i]
    begin = sum(dims[first] * sum(dims[first + 1 :]) for first in range(i))
    beside = weight[begin : begin + dims[i] * sum(dims[i + 1 :])].view(dims[i], -1)
    return beside[:, sum(dims[i + 1 : j]) :][:, : dims[j]]


def bilinear(weight, kind, e):
    dims = [len(vector) for vector in e]
    pairs = itertools.combinations(range(len(e)), 2)
    return [(e[i] @ matrix(weight, kind, dims, i, j)) * e[j] for i, j in pairs]


def fibinet(model, parameters, e, row):
    kind = model.config["bilinear"]
    z = torch.stack([vector.sum() / len(vector) for vector in e])
    a = torch.relu(parameters["weighting.squeeze.weight"] @ z)
    a = torch.relu(parameters["weighting.excite.weight"] @ a)
    p = bilinear(parameters["products.weight"], kind, e)
    q = bilinear(parameters["weighted_products.weight"], kind, [a[i] * vector for i, vector in enumerate(e)])
    return perceptron(parameters, torch.cat([*p, *q]))


@pytest.mark.parametrize(("kind", "dims"), [*((kind, 4) for kind in KINDS), ("interaction", OWN_DIMS)])
def test_logits_and_gradients_are_those_of_the_equation(kind, dims):
    assert_follows(random_model("fibinet", bilinear=kind, dims=dims, reduction=2), fibinet)


def test_one_matrix_for_all_is_one_for_each_field_or_pair_that_is_the_same():
    every, each, pair = (Bilinear([3] * 4, kind).double() for kind in KINDS)
    assert [one.weight.numel() for one in (every, each, pair)] == [9, 3 * 9, 6 * 9]
    W = torch.randn(3, 3, dtype=torch.float64)
    every.weight.data = W
    each.weight.data = W.repeat(3, 1, 1)
    pair.weight.data = torch.cat([W.repeat(1, later).view(-1) for later in (3, 2, 1)])
    V = torch.randn(5, 12, dtype=torch.float64)
    torch.testing.assert_close(each(V), every(V))
    torch.testing.assert_close(pair(V), every(V))


def test_with_the_identity_the_products_are_those_of_elements():
    one = Bilinear([3] * 4, "all").double()
    one.weight.data = torch.eye(3, dtype=torch.float64)
    V = torch.randn(5, 12, dtype=torch.float64)
    sums = one(V).view(5, 6, 3).sum(2)
    f = V.view(5, 4, 3)
    expected = [(f[:, i] * f[:, j]).sum(1) for i, j in itertools.combinations(range(4), 2)]
    torch.testing.assert_close(sums, torch.stack(expected, 1))


def test_fields_have_weights_that_are_not_negative_and_scale_them():
    weighting = small("fibinet", dims=OWN_DIMS, reduction=2).weighting
    V = torch.randn(50, sum(OWN_DIMS))
    weights = weighting.weights(V)
    assert weights.shape == (50, len(SIZES))
    assert (weights >= 0).all()
    assert weights.std(0).amin() > 0  # another row, other weights
    scaled = [part * weights[:, [i]] for i, part in enumerate(V.split(OWN_DIMS, 1))]
    torch.testing.assert_close(weighting(V), torch.cat(scaled, 1))


def test_no_field_is_off_for_good_at_first():
    for seed in range(5):
        weighting = small("fibinet", seed).weighting
        assert (weighting.weights(torch.randn(100, 16)).amax(0) > 0).all()


@pytest.mark.parametrize("kind", ["all", "each"])
def test_fields_that_share_a_matrix_have_the_same_dimension(kind):
    with pytest.raises(Fm2Error, match="dimensions are 3, 1, 4, 2; they have to be equal where fields share a matrix"):
        small("fibinet", dims=OWN_DIMS, bilinear=kind)


@pytest.mark.parametrize(("kind", "products"), [("all", 38 * 256), ("each", 38 * 256), ("interaction", 741 * 256)])
def test_operations_are_those_that_torch_counts(kind, products):
    """Torch counts matrix products alone, means by a matrix among them; n = 39 and K = 16 have 741 · 16 products."""
    model = build({"model": "fibinet", **PAPER, "hidden": [200] * 3, "bilinear": kind})
    matrices = 2 * (2 * 741 * 16 * 200 + 2 * 200**2 + 200) + 2 * 2 * 39 * 13 + 2 * 2 * products
    assert counted_flops(model) == matrices + 2 * 624 * 39
    assert model.flops() == matrices + 78 + 2 * 624 + 2 * 741 * 16


def test_operations_are_about_those_of_the_paper():
    """It has n² pairs for n (n - 1), and L matrices H × H for L - 1."""
    model = build({"model": "fibinet", **PAPER, "hidden": [200] * 3})
    assert model.flops() == pytest.approx(FORMULAS["fibinet"], rel=0.05)
