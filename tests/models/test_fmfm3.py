"""FmFM3: its equation, and the structure of its triples."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from tests.helpers.equations import assert_follows, random_model
from tests.helpers.networks import OWN_DIMS, small

from fm2.models import build

every_dims = pytest.mark.parametrize("dims", [[4] * 4, OWN_DIMS])


def literal(model, p, vectors):
    """Return a row's logit by loops over pairs, triples and ranks, with the full tensor of each triple."""
    starts = [*model.embedding.starts, model.embedding.width]
    a = [p["triples.weight"][starts[i] : starts[i + 1]] for i in range(len(vectors))]
    logit = 0
    for i, j in combinations(range(len(vectors)), 2):
        logit = logit + vectors[i] @ model.pairs.entries(p["pairs.weight"], i, j) @ vectors[j]
    for i, j, k in combinations(range(len(vectors)), 3):
        tensor = sum(
            a[i][:, r][:, None, None] * a[j][:, r][None, :, None] * a[k][:, r][None, None] for r in range(a[i].shape[1])
        )
        for x in range(len(vectors[i])):
            for y in range(len(vectors[j])):
                for z in range(len(vectors[k])):
                    logit = logit + tensor[x, y, z] * vectors[i][x] * vectors[j][y] * vectors[k][z]
    return logit


@every_dims
def test_logits_and_gradients_follow_the_equation(dims):
    assert_follows(random_model("fmfm3", dims=dims, triple_rank=3), literal)


@every_dims
def test_triples_are_linear_in_every_field_and_vanish_with_fewer_than_three(dims):
    triples = random_model("fmfm3", dims=dims, triple_rank=3).triples
    field = torch.arange(4).repeat_interleave(torch.tensor(dims))
    v = torch.randn(5, sum(dims), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for one in range(4):
        scaled, without = (torch.where(field == one, factor * v, v) for factor in (3.0, 0.0))
        alone = triples(v) - triples(without)
        torch.testing.assert_close(triples(scaled) - triples(without), 3 * alone)
    torch.testing.assert_close(triples(v * (field < 2)), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(triples(v * (field > 0)), triples.projections(v)[1:].prod(0).sum(0))


def test_without_triples_the_model_is_an_fmfm():
    model = small("fmfm3", triple_std=0.0)
    fmfm = build({"model": "fmfm", "field_sizes": model.field_sizes, "dims": 4, "linear": "features"})
    fmfm.load_state_dict(
        {key.replace("pairs.", "interaction."): v for key, v in model.state_dict().items() if "triples" not in key}
    )
    ids = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 0]])
    torch.testing.assert_close(model(ids), fmfm(ids))
