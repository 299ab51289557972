"""Wide & Deep, DeepFM and DeepFmFM: their equations."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, SIZES, assert_exported, random_rows, small

from fm2.models import build

EQUAL = [4] * 4
CASES = [
    ("widedeep", {"dims": EQUAL}),
    ("widedeep", {"dims": OWN_DIMS}),
    ("deepfm", {"dims": EQUAL}),
    *(("deepfmfm", {"dims": dims, "linear": linear}) for dims in (EQUAL, OWN_DIMS) for linear in ("features", "both")),
    ("deepfmfm", {"dims": OWN_DIMS, "linear": "fields"}),
]


def equation(model, parameters, vectors):
    x = torch.cat(vectors)
    logit = perceptron(parameters, x)
    if "field_linear" in parameters:
        logit = logit + x @ parameters["field_linear"]
    for i, j in itertools.combinations(range(len(SIZES)), 2):
        if model.name == "deepfm":
            logit = logit + vectors[i] @ vectors[j]
        elif model.name == "deepfmfm":
            logit = logit + vectors[i] @ model.interaction.entries(parameters["interaction.weight"], i, j) @ vectors[j]
    return logit


@pytest.mark.parametrize(("name", "options"), CASES)
def test_logits_and_gradients_follow_the_equation(name, options):
    assert_follows(random_model(name, **options), equation)


@pytest.mark.parametrize(("name", "part"), [("widedeep", "lr"), ("deepfm", "fm"), ("deepfmfm", "fmfm")])
def test_without_the_perceptron_the_shallow_model_remains(name, part):
    model = random_model(name)
    config = {"model": part, "field_sizes": SIZES} | ({} if part == "lr" else {"dims": 4, "linear": "features"})
    machine = build(config).double()
    machine.load_state_dict({key: model.state_dict()[key] for key in machine.state_dict()})
    ids = torch.from_numpy(random_rows(20)[0])
    assert not torch.allclose(model(ids), machine(ids))
    model.mlp.last.weight.data.zero_()
    model.mlp.last.bias.data.zero_()
    torch.testing.assert_close(model(ids), machine(ids))


@pytest.mark.parametrize("linear", ["fields", "both"])
def test_linear_parts_with_vectors_per_field_can_be_exported(linear):
    assert_exported(small("deepfmfm", dims=OWN_DIMS, linear=linear))
