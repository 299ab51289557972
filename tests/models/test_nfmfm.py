"""NFmFM: its equation."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import OWN_DIMS

every_dims = pytest.mark.parametrize("dims", [[4] * 4, OWN_DIMS])


def pair_sum(model, vectors, weight):
    """Return Σ v_i M[i,j] v_jᵀ of a row."""
    n, entries = len(vectors), model.interaction.entries
    return sum(vectors[i] @ entries(weight, i, j) @ vectors[j] for j in range(n) for i in range(j))


def literal(model, p, vectors):
    """Return a row's logit by loops over pairs."""
    n, weight, entries = len(vectors), p["interaction.weight"], model.interaction.entries
    products = []
    for i in range(n):
        matrices = {j: entries(weight, i, j) if i < j else entries(weight, j, i).T for j in range(n) if j != i}
        products.append(vectors[i] * sum(matrix @ vectors[j] for j, matrix in matrices.items()))
    return pair_sum(model, vectors, weight) + perceptron(p, torch.cat(products))


@every_dims
def test_logits_and_gradients_follow_the_equation(dims):
    assert_follows(random_model("nfmfm", dims=dims), literal)


@every_dims
def test_only_without_the_perceptron_the_model_is_an_fmfm(dims):
    model = random_model("nfmfm", dims=dims)
    v = torch.randn(3, sum(dims), dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def is_quadratic():
        halved = model.network(v / 2) - model.network(v * 0)
        return torch.allclose(halved * 4, model.network(v) - model.network(v * 0))

    assert not is_quadratic()
    model.mlp.last.weight.data.zero_()
    model.mlp.last.bias.data.zero_()
    assert is_quadratic()
    expected = [pair_sum(model, row.split(list(dims)), model.interaction.weight) for row in v]
    torch.testing.assert_close(model.network(v), torch.stack(expected))
