"""The paper's counts of parameters (section 3.3) and floating point operations (section 4.2)."""

from __future__ import annotations

import pytest
import torch
from tests.helpers.network_formulas import FORMULAS

from fm2.data.presets import CRITEO_FIELD_SIZES
from fm2.errors import Fm2Error
from fm2.models import FFM, FM, LR, FmFM, FvFM, FwFM, Poly2
from fm2.models.paper import CRITEO_DIMS
from fm2.studies.reproduction.published import OPERATIONS

SMALL = [2] * 39
M = 1_327_180
PAIRS = 741


def test_the_papers_table_of_dimensions():
    assert len(CRITEO_DIMS) == len(CRITEO_FIELD_SIZES) == 39
    assert sum(CRITEO_FIELD_SIZES) == M
    assert sum(CRITEO_DIMS) / 39 == pytest.approx(7.718, abs=5e-4)


@pytest.mark.parametrize(
    ("model", "flops"),
    [
        (LR(SMALL), 78),
        (Poly2(SMALL), 1_560),
        (FM(SMALL, 16), 1_920),
        (FFM(SMALL, 16), 24_531),
        (FwFM(SMALL, 16), 25_272),
        (FvFM(SMALL, 16), PAIRS * (3 * 16 + 1) + 78),
        (FmFM(SMALL, 16), 403_923),
    ],
    ids=["lr", "poly2", "fm", "ffm", "fwfm", "fvfm", "fmfm"],
)
def test_operations_are_the_papers(model, flops):
    assert model.flops() == flops


def test_operations_of_cached_vectors_are_the_papers():
    assert FmFM(SMALL, 16).flops(cached=True) == 24_531
    assert FmFM(SMALL, CRITEO_DIMS).flops(cached=True) == 8_960
    assert FwFM(SMALL, 16).flops(cached=True) == FvFM(SMALL, 16).flops(cached=True) == 24_531
    with pytest.raises(Fm2Error, match="fm: the model has no field matrices whose products could be cached"):
        FM(SMALL, 16).flops(cached=True)


def test_parameters_are_the_papers():
    sizes = CRITEO_FIELD_SIZES
    with torch.device("meta"):
        assert LR(sizes).n_parameters == M
        assert Poly2(sizes, hash_bits=22).n_parameters == M + 2**22
        assert FM(sizes, 16, seed=None).n_parameters == M + M * 16 == 22_562_060
        assert FM(sizes, 10, seed=None).n_parameters / 1e6 == pytest.approx(14.6, abs=0.05)
        assert FFM(sizes, 16, seed=None).n_parameters == M + M * 38 * 16 == 808_252_620
        assert FFM(sizes, 17, seed=None).n_parameters / 1e6 == pytest.approx(858.69, abs=0.01)
    for linear, first_order in {"features": M, "fields": 39 * 16, "both": M + 39 * 16}.items():
        options = {"linear": linear, "seed": None}
        assert FwFM(sizes, 16, **options).n_parameters == first_order + M * 16 + PAIRS
        assert FvFM(sizes, 16, **options).n_parameters == first_order + M * 16 + PAIRS * 16
        assert FmFM(sizes, 16, **options).n_parameters == first_order + M * 16 + PAIRS * 16**2


def test_parameters_of_field_specific_dimensions():
    embeddings = sum(size * dim for size, dim in zip(CRITEO_FIELD_SIZES, CRITEO_DIMS, strict=True))
    matrices = (sum(CRITEO_DIMS) ** 2 - sum(dim**2 for dim in CRITEO_DIMS)) // 2
    model = FmFM(CRITEO_FIELD_SIZES, CRITEO_DIMS, linear="features", seed=None)
    assert model.n_parameters == M + embeddings + matrices


@pytest.mark.parametrize("name", FORMULAS)
def test_the_papers_figures_for_networks_follow_its_formulas(name):
    assert FORMULAS[name] == pytest.approx(OPERATIONS[name], rel=0.08)  # it rounds generously
