"""FiBiNET: its equations."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, SIZES, small

from fm2.errors import Fm2Error
from fm2.models.deep.products import Bilinear

KINDS = ("all", "each", "interaction")


def matrix(weight, kind, dims, i, j):
    """Return the matrix W of a pair of fields."""
    if kind != "interaction":
        return weight if kind == "all" else weight[i]
    begin = sum(dims[first] * sum(dims[first + 1 :]) for first in range(i))
    matrices = weight[begin : begin + dims[i] * sum(dims[i + 1 :])].view(dims[i], -1)
    return matrices[:, sum(dims[i + 1 : j]) :][:, : dims[j]]


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
def test_logits_and_gradients_follow_the_equation(kind, dims):
    assert_follows(random_model("fibinet", bilinear=kind, dims=dims, reduction=2), fibinet)


def test_equal_matrices_per_field_or_pair_act_like_one_shared_matrix():
    every, each, pair = (Bilinear([3] * 4, kind).double() for kind in KINDS)
    assert [one.weight.numel() for one in (every, each, pair)] == [9, 3 * 9, 6 * 9]
    W = torch.randn(3, 3, dtype=torch.float64)
    every.weight.data = W
    each.weight.data = W.repeat(3, 1, 1)
    pair.weight.data = torch.cat([W.repeat(1, later).view(-1) for later in (3, 2, 1)])
    V = torch.randn(5, 12, dtype=torch.float64)
    torch.testing.assert_close(each(V), every(V))
    torch.testing.assert_close(pair(V), every(V))


def test_identity_matrices_yield_element_wise_products():
    one = Bilinear([3] * 4, "all").double()
    one.weight.data = torch.eye(3, dtype=torch.float64)
    V = torch.randn(5, 12, dtype=torch.float64)
    sums = one(V).view(5, 6, 3).sum(2)
    f = V.view(5, 4, 3)
    expected = [(f[:, i] * f[:, j]).sum(1) for i, j in itertools.combinations(range(4), 2)]
    torch.testing.assert_close(sums, torch.stack(expected, 1))


def test_importance_is_not_negative_and_scales_the_fields():
    weighting = small("fibinet", dims=OWN_DIMS, reduction=2).weighting
    V = torch.randn(50, sum(OWN_DIMS))
    weights = weighting.weights(V)
    assert weights.shape == (50, len(SIZES))
    assert (weights >= 0).all()
    assert weights.std(0).amin() > 0  # the importance depends on the row
    scaled = [part * weights[:, [i]] for i, part in enumerate(V.split(OWN_DIMS, 1))]
    torch.testing.assert_close(weighting(V), torch.cat(scaled, 1))


def test_no_field_starts_with_zero_importance_in_all_rows():
    for seed in range(5):
        weighting = small("fibinet", seed).weighting
        assert (weighting.weights(torch.randn(100, 16)).amax(0) > 0).all()


@pytest.mark.parametrize("kind", ["all", "each"])
def test_fields_that_share_a_matrix_need_equal_dimensions(kind):
    with pytest.raises(
        Fm2Error,
        match="Bilinear: the fields have dimensions 3, 1, 4, 2; fields that share a matrix must have equal dimensions",
    ):
        small("fibinet", dims=OWN_DIMS, bilinear=kind)
