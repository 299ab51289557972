"""Wide & Deep, DeepFM and DeepFmFM calculate what their equations say, and count what it costs."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import OWN_DIMS, PAPER, SIZES, assert_exported, counted_flops, random_rows, small

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
def test_logits_and_gradients_are_those_of_the_equation(name, options):
    assert_follows(random_model(name, **options), equation)


@pytest.mark.parametrize(("name", "part"), [("widedeep", "lr"), ("deepfm", "fm"), ("deepfmfm", "fmfm")])
def test_where_the_perceptron_is_silent_it_is_the_machine_beside_it(name, part):
    model = random_model(name)
    config = {"model": part, "field_sizes": SIZES} | ({} if part == "lr" else {"dims": 4, "linear": "features"})
    machine = build(config).double()
    machine.load_state_dict({key: model.state_dict()[key] for key in machine.state_dict()})
    ids = torch.from_numpy(random_rows(20)[0])
    assert not torch.allclose(model(ids), machine(ids))
    model.mlp.last.weight.data.zero_()
    model.mlp.last.bias.data.zero_()
    torch.testing.assert_close(model(ids), machine(ids))


def test_operations_are_those_that_torch_counts():
    """Torch counts matrix products alone: the linear part's 2n and FM's 1,920 operations are beside them."""
    size = {**PAPER, "hidden": [200] * 3}
    perceptron = 2 * (624 * 200 + 2 * 200**2 + 200)
    wide, fm, fmfm = (build({"model": name, **size}) for name in ("widedeep", "deepfm", "deepfmfm"))
    assert counted_flops(wide) == counted_flops(fm) == perceptron
    assert wide.flops() == perceptron + 78
    assert fm.flops() == perceptron + 78 + 1_920
    assert fmfm.flops() == perceptron + 403_923
    assert counted_flops(fmfm) == perceptron + 2 * 624**2  # the block form multiplies by both halves of S


@pytest.mark.parametrize("linear", ["fields", "both"])
def test_vectors_of_fields_are_exported(linear):
    assert_exported(small("deepfmfm", dims=OWN_DIMS, linear=linear))
