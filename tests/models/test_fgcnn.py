"""FGCNN: its equations."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model, vectors_of
from tests.helpers.networks import small

from fm2.errors import Fm2Error

K = 4
RECOMBINATION = ("recombination.weight", "recombination.bias")


def convolved(weight, maps):
    """Return tanh of the convolution of maps[m][p][q] over p, padded with zeros."""
    out_maps, in_maps, height, _ = weight.shape
    n = len(maps[0])
    convolution = torch.zeros(out_maps, n, K, dtype=torch.float64)
    for o, p, q in itertools.product(range(out_maps), range(n), range(K)):
        total = torch.zeros((), dtype=torch.float64)
        for m, j in itertools.product(range(in_maps), range(height)):
            if 0 <= p + j - height // 2 < n:
                total = total + weight[o, m, j, 0] * maps[m][p + j - height // 2][q]
        convolution[o, p, q] = torch.tanh(total)
    return convolution


def pooled(maps, height):
    """Return the maximum of every ``height`` fields; the last window can be smaller."""
    return torch.stack([maps[:, start : start + height].amax(1) for start in range(0, maps.shape[1], height)], 1)


def fgcnn(model, parameters, e, row):
    features = list(e)
    maps = torch.stack(vectors_of(model, parameters, row, "generation"))[None]
    for index in range(len(model.config["conv_maps"])):
        weights = {key: parameters[f"rounds.{index}.{key}"] for key in ("weight", *RECOMBINATION)}
        maps = pooled(convolved(weights["weight"], maps), model.config["pooling"])
        new = torch.tanh(weights[RECOMBINATION[0]] @ maps.reshape(-1) + weights[RECOMBINATION[1]])
        features += [new[start : start + K] for start in range(0, len(new), K)]
    products = [one @ other for one, other in itertools.combinations(features, 2)]
    return perceptron(parameters, torch.cat([*features, torch.stack(products)]))


@pytest.mark.parametrize(
    "options",
    [
        {"conv_maps": [2, 3], "conv_height": 3, "new_maps": 2},
        {"conv_maps": [2], "conv_height": 4, "pooling": 3},
        {"conv_maps": [2, 1], "conv_height": 9, "pooling": 1},
    ],
)
def test_logits_and_gradients_follow_the_equation(options):
    assert_follows(random_model("fgcnn", **options), fgcnn)


def test_no_convolutions_raise_an_error():
    with pytest.raises(Fm2Error, match="fgcnn: conv_maps is empty; use ipnn for a model without convolutions"):
        small("fgcnn", conv_maps=[])


def test_columns_of_the_embeddings_are_convolved_independently():
    """Permuted columns have permuted maps: columns do not mix before the recombination."""
    part = small("fgcnn", conv_maps=[3], conv_height=3).rounds[0]
    maps, order = torch.randn(5, 1, 4, K), torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(part(maps[..., order])[0], part(maps)[0][..., order])


def test_a_field_influences_only_adjacent_maps():
    part = small("fgcnn", conv_maps=[2], conv_height=3, pooling=1).rounds[0]
    maps = torch.randn(1, 1, 4, K)
    changed = maps.clone()
    changed[:, :, 0] += 1
    moved = (part(changed)[0] - part(maps)[0]).abs().amax((0, 1, 3))
    assert (moved[:2] > 0).all()
    assert not moved[2:].any()


def test_both_tables_have_different_initial_weights():
    model = small("fgcnn")
    assert model.generation.weight.std().item() == pytest.approx(0.5, rel=0.2)
    assert not torch.equal(model.generation.weight, model.embedding.weight)
