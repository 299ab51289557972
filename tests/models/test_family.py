"""FM, FwFM, FvFM and FmFM as one quadratic form."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from fm2.errors import Fm2Error
from fm2.models import FM, FmFM, FvFM, FwFM
from fm2.models.family import diagonal
from fm2.models.family.machine import INTERACTIONS

SIZES = [3, 4, 2, 5, 3]
IDS = torch.tensor([[0, 1, 0, 4, 2], [2, 3, 1, 0, 0], [1, 1, 1, 1, 1]])


def randomized(model, seed=1):
    model.double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    return model


def as_fmfm(model):
    """Return an FmFM with the field matrices and all other weights of another model."""
    fmfm = FmFM(SIZES, model.config["dims"], linear=model.config["linear"], seed=None).double()
    others = {name: value for name, value in model.state_dict().items() if name != "interaction.weight"}
    fmfm.load_state_dict(others, strict=False)
    for i, j in combinations(range(len(SIZES)), 2):
        fmfm.interaction.field_matrix(i, j).copy_(model.field_matrix(i, j))
    return fmfm


@pytest.mark.parametrize("constructor", [FM, FwFM, FvFM], ids=["fm", "fwfm", "fvfm"])
@pytest.mark.parametrize("linear", ["features", "fields", "both"])
def test_every_model_is_an_fmfm_with_restricted_matrices(constructor, linear):
    model = randomized(constructor(SIZES, 3, linear=linear))
    torch.testing.assert_close(model(IDS), as_fmfm(model)(IDS))


def test_field_matrices_have_the_structure_of_their_model():
    assert torch.equal(FM(SIZES, 3).field_matrix(0, 4), torch.eye(3))
    scalar = FwFM(SIZES, 3).field_matrix(1, 3)
    assert torch.equal(scalar, scalar[0, 0] * torch.eye(3)) and scalar[0, 0] != 0
    vector = FvFM(SIZES, 3).field_matrix(1, 3)
    assert torch.equal(vector, vector.diagonal().diag()) and len(set(vector.diagonal().tolist())) == 3
    matrix = FmFM(SIZES, [1, 2, 3, 4, 5])
    assert matrix.field_matrix(1, 3).shape == (2, 4)
    assert torch.equal(matrix.field_matrix(3, 1), matrix.field_matrix(1, 3).T)
    for wrong in [(0, 0), (0, 5), (-1, 2)]:
        with pytest.raises(
            Fm2Error, match=r"fmfm: fields .* have no field matrix; pass two different fields between 0 and 4"
        ):
            matrix.field_matrix(*wrong)


def test_field_matrices_are_blocks_of_a_symmetric_matrix():
    model = FmFM(SIZES, [1, 2, 3, 4, 5])
    S, starts = model.interaction.symmetric(), [0, 1, 3, 6, 10, 15]
    assert torch.equal(S, S.T)
    for i in range(5):
        for j in range(5):
            block = S[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]
            assert torch.equal(block, model.field_matrix(i, j) if i != j else torch.zeros_like(block))


@pytest.mark.parametrize("interaction", INTERACTIONS)
@pytest.mark.parametrize("linear", [True, False])
def test_the_handwritten_backward_pass_is_the_derivative(interaction, linear, monkeypatch):
    monkeypatch.setattr(diagonal, "BLOCK", 24)  # two rows: three blocks, the last of one row
    generator = torch.Generator().manual_seed(0)
    dims = [2, 3, 1, 2] if interaction == "matrix" else [3, 3, 3, 3]
    form = INTERACTIONS[interaction](dims).double()
    V = torch.randn(5, sum(dims), dtype=torch.float64, generator=generator, requires_grad=True)
    w = torch.randn(sum(dims), dtype=torch.float64, generator=generator, requires_grad=True) if linear else None
    inputs = [tensor for tensor in (V, form.weight, w) if tensor is not None]
    if form.weight is not None:
        form.weight.data.normal_(generator=generator)
    assert torch.autograd.gradcheck(lambda *_: form(V, w), inputs)


@pytest.mark.parametrize("constructor", [FM, FwFM, FvFM, FmFM])
def test_backward_can_run_twice(constructor):
    model = randomized(constructor(SIZES, 2))
    loss = model(IDS).square().sum()
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters()]
    loss.backward()
    for parameter, gradient in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


@pytest.mark.parametrize("constructor", [FM, FwFM, FvFM, FmFM])
def test_a_single_field_has_no_pairs(constructor):
    model = constructor([5], 3, linear="features")
    model.linear.weight.data = torch.arange(5.0)
    assert model(torch.tensor([[4], [2]])).tolist() == [4.0, 2.0]


@pytest.mark.parametrize("constructor", [FM, FwFM, FvFM])
def test_only_fmfm_accepts_dimensions_per_field(constructor):
    with pytest.raises(Fm2Error, match="have dimensions 1, 2, 3, 4, 5; they must be equal; fmfm accepts one per field"):
        constructor(SIZES, [1, 2, 3, 4, 5])


def test_invalid_settings_raise_an_error():
    with pytest.raises(Fm2Error, match="fmfm: got 2 dimensions for 5 fields; pass one, or one per field"):
        FmFM(SIZES, [1, 2])
    with pytest.raises(Fm2Error, match="fmfm: field 3 has dimension 0; dimensions must be at least 1"):
        FmFM(SIZES, [1, 2, 1, 0, 1])
    with pytest.raises(Fm2Error, match="fmfm: unknown linear part 'none'; expected one of features, fields, both"):
        FmFM(SIZES, 2, linear="none")
    with pytest.raises(
        Fm2Error, match=r"FlatEmbedding: the field sizes are \[3, 0\]; pass at least one, and all at least 1"
    ):
        FmFM([3, 0], 2)


def test_initial_weights_have_the_requested_standard_deviations():
    sizes = [1000] * 20
    model = FmFM(sizes, 8, embedding_std=0.5, interaction_std=0.25, linear_std=2.0)
    spreads = {name: parameter.std().item() for name, parameter in model.named_parameters() if parameter.ndim}
    assert spreads == {
        "embedding.weight": pytest.approx(0.5, rel=0.02),
        "interaction.weight": pytest.approx(0.25, rel=0.02),
        "field_linear": pytest.approx(2.0, rel=0.2),
    }


@pytest.mark.parametrize("constructor", [FwFM, FvFM, FmFM])
def test_field_matrices_can_start_as_identities(constructor):
    model = constructor(SIZES, 3, interaction_std=0.0, identity=1.0, linear="features")
    assert torch.equal(model.field_matrix(4, 2), torch.eye(3))
    torch.testing.assert_close(model(IDS), FM(SIZES, 3)(IDS))


def test_identities_of_unequal_dimensions_are_truncated():
    model = FmFM(SIZES, [1, 2, 3, 4, 5], interaction_std=0.0, identity=0.5)
    assert torch.equal(model.field_matrix(1, 2), 0.5 * torch.eye(2, 3))


def learned_matrices(model, steps=5):
    """Return the field matrices after some steps of Adam on all parameters."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    target = torch.linspace(-1, 1, len(IDS))
    for _ in range(steps):
        optimizer.zero_grad()
        (model(IDS) - target).square().sum().backward()
        optimizer.step()
    return {(i, j): model.field_matrix(i, j) for i, j in combinations(range(len(SIZES)), 2)}


@pytest.mark.parametrize(("form", "constructor"), [("diagonal", FvFM), ("scalar", FwFM)])
def test_restricted_matrices_learn_like_the_simpler_model(form, constructor):
    restricted, simpler = FmFM(SIZES, 3, "both", matrices=form, interaction_std=0.5), constructor(SIZES, 3, "both")
    for name, parameter in simpler.named_parameters():
        if not name.startswith("interaction"):
            parameter.data = dict(restricted.named_parameters())[name].detach().clone()
    for pair, (i, j) in enumerate(combinations(range(len(SIZES)), 2)):
        diagonal = restricted.field_matrix(i, j).diagonal()
        assert diagonal.abs().min() > 0
        simpler.interaction.weight.data[pair] = diagonal if form == "diagonal" else diagonal[:1]
    torch.testing.assert_close(restricted(IDS), simpler(IDS))
    for one, other in zip(learned_matrices(restricted).values(), learned_matrices(simpler).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert restricted.n_parameters == simpler.n_parameters == restricted.spec.count_parameters(restricted.config)


@pytest.mark.parametrize("form", ["diagonal", "scalar"])
def test_restricted_matrices_of_different_dimensions_are_zero_beside_the_diagonal(form):
    model = FmFM(SIZES, [1, 2, 3, 4, 5], matrices=form, pruned=[(1, 2)], interaction_std=0.5)
    for (i, j), matrix in learned_matrices(model).items():
        diagonal = matrix.diagonal().clone()
        matrix.diagonal().zero_()
        assert not matrix.any()
        assert (diagonal == 0).all() if (i, j) == (1, 2) else (diagonal != 0).all()
        assert form == "diagonal" or (diagonal == diagonal[0]).all()
    assert model.n_parameters == model.spec.count_parameters(model.config)


def test_only_fmfm_has_forms_of_matrices():
    with pytest.raises(Fm2Error, match="fwfm: the field matrices cannot be diagonal; only those of fmfm can"):
        FwFM(SIZES, 3, matrices="diagonal")
