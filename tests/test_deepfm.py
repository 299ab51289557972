"""Wide & Deep, DeepFM and DeepFmFM calculate what their equations say, and count what it costs."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.networks import OWN_DIMS, PAPER, SIZES, counted_flops, random_rows, small

from fm2.models import build

EQUAL = [4] * 4
CASES = [
    ("widedeep", {"dims": EQUAL}),
    ("widedeep", {"dims": OWN_DIMS}),
    ("deepfm", {"dims": EQUAL}),
    *(("deepfmfm", {"dims": dims, "linear": linear}) for dims in (EQUAL, OWN_DIMS) for linear in ("features", "both")),
    ("deepfmfm", {"dims": OWN_DIMS, "linear": "fields"}),
]


def random_model(name, options):
    model = small(name, **options).double()
    source = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(generator=source)
    return model


def rows_of(table, weight, ids):
    """Look embeddings up one by one: a list of vectors per row."""
    return [
        [weight[table.offsets[f] + int(i) * table.dims[f] :][: table.dims[f]] for f, i in enumerate(row)] for row in ids
    ]


def literal(model, parameters, ids):
    """Give the logits by loops."""
    found = []
    for row, vectors in zip(ids, rows_of(model.embedding, parameters["embedding.weight"], ids), strict=True):
        logit = parameters["bias"]
        if "linear.weight" in parameters:
            logit = logit + sum(rows_of(model.linear, parameters["linear.weight"], [row])[0])[0]
        for i, j in itertools.combinations(range(len(SIZES)), 2):
            if model.name == "deepfm":
                logit = logit + vectors[i] @ vectors[j]
            elif model.name == "deepfmfm":
                matrix = model.interaction.entries(parameters["interaction.weight"], i, j)
                logit = logit + vectors[i] @ matrix @ vectors[j]
        x = torch.cat(vectors)
        if "field_linear" in parameters:
            logit = logit + x @ parameters["field_linear"]
        for layer in range(2):
            x = torch.relu(parameters[f"mlp.layers.{layer}.weight"] @ x + parameters[f"mlp.layers.{layer}.bias"])
        found.append(logit + parameters["mlp.last.weight"][0] @ x + parameters["mlp.last.bias"][0])
    return torch.stack(found)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_logits_and_gradients_are_those_of_the_equation(name, options):
    model = random_model(name, options)
    ids = torch.from_numpy(random_rows(6)[0])
    parameters = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    g = torch.linspace(-1, 2, len(ids), dtype=torch.float64)
    expected, logits = literal(model, parameters, ids), model(ids)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    expected.backward(g)
    logits.backward(g)
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.grad, parameters[key].grad, rtol=1e-11, atol=1e-11, msg=key)


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
