"""Compression of models with list fields, against literal sums over the values of every row."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.helpers.lists import random_rows, values_of

from fm2 import Field, Fm2Error, Schema
from fm2.compression import spectrum
from fm2.compression.cut import build_fm
from fm2.compression.dimensions import find_bases, principal_basis
from fm2.compression.moments import Occurrences, pooled
from fm2.compression.prune import pair_strengths, without_pairs
from fm2.compression.shrink import project
from fm2.compression.weights import Weights, read_weights
from fm2.data.encoder import Encoder
from fm2.data.rows import EncodedRows, Lists
from fm2.data.vocabulary import Vocabulary
from fm2.models import FM, FactorizationMachine, FmFM, FvFM, FwFM
from fm2.training.run import Run

SIZES, LIST_FIELDS = [5, 9, 4, 8], (1, 3)
SHARED = [8, 9, 8, 8]  # fields 0 and 2 use the embeddings of field 3
OWNERS = [3, 1, 3, 3]
PAIRS = list(itertools.combinations(range(4), 2))
ROWS = random_rows(SIZES, LIST_FIELDS, rows=60)


def randomized(model: FactorizationMachine) -> FactorizationMachine:
    """Set all weights to random numbers of order 1."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6, generator=generator)
    return model.eval()


def vectors(model: FactorizationMachine, rows: EncodedRows) -> list[np.ndarray]:
    """Return the vector of every field and row: the weighted sum of its features' embeddings."""
    fields = []
    for field, dim in enumerate(model.embedding.dims):
        table = model.embedding.rows(field).double().numpy()
        sums = [sum((weight * table[id] for id, weight in values), np.zeros(dim)) for values in values_of(rows, field)]
        fields.append(np.array(sums).reshape(len(rows), dim))
    return fields


def literal_logits(model: FactorizationMachine, rows: EncodedRows) -> np.ndarray:
    """Return bias + linear part + the sum over pairs of different fields."""
    v = vectors(model, rows)
    logits = np.full(len(rows), model.bias.item())
    if model.field_linear is not None:
        logits += np.concatenate(v, axis=1) @ model.field_linear.detach().double().numpy()
    if model.linear is not None:
        for field in range(len(v)):
            weights = model.linear.rows(field).double().numpy()[:, 0]
            logits += [sum(weight * weights[id] for id, weight in values) for values in values_of(rows, field)]
    for i, j in itertools.combinations(range(len(v)), 2):
        matrix = model.field_matrix(i, j).double().numpy()
        logits += np.einsum("ra,ab,rb->r", v[i], matrix, v[j])
    return logits


def stored(model: FactorizationMachine, path: Path) -> Weights:
    """Save a model as a run and read its weights."""
    fields = [Field(f"f{field}", multivalued=field in LIST_FIELDS) for field in range(len(SIZES))]
    words = [Vocabulary.of([f"v{id}" for id in range(1, size)], [1] * (size - 1)) for size in model.field_sizes]
    path.mkdir()
    Run(path, model, Encoder(Schema(fields, label="click"), words), {"auc": 0.5, "log_loss": 0.7}).save(path)
    return read_weights(path)


def occurrences(rows: EncodedRows, sizes: list[int] = SIZES) -> list[Occurrences]:
    """Return the counts of features, and the lists of list fields."""
    compact = rows.compact()
    return [
        compact.lists[field] if field in LIST_FIELDS else np.bincount(rows.ids[:, field], minlength=size).astype(float)
        for field, size in enumerate(sizes)
    ]


def test_lists_are_pooled_as_written_out():
    table = np.random.default_rng(1).normal(size=(SIZES[1], 3))
    lists = ROWS.lists[1].take(ROWS.ids[:, 1])
    expected = [sum((weight * table[id] for id, weight in values), np.zeros(3)) for values in values_of(ROWS, 1)]
    assert any(not values for values in values_of(ROWS, 1))
    np.testing.assert_allclose(pooled(table, lists), expected, atol=1e-6)
    np.testing.assert_allclose(pooled(table[:, 0], lists), np.array(expected)[:, 0], atol=1e-6)
    assert pooled(table, Lists.of([])).shape == (0, 3)
    assert not pooled(table, Lists.of([[], []])).any()


@pytest.mark.parametrize("make", [FM, FwFM, FvFM, FmFM])
def test_exact_logits_follow_the_formula(make, tmp_path):
    model = randomized(make(SIZES, 3, linear="both"))
    logits = spectrum.exact_logits(stored(model, tmp_path / "run"), ROWS)
    np.testing.assert_allclose(logits, literal_logits(model, ROWS), atol=2e-4)


def test_moments_are_those_of_the_fields_vectors(tmp_path):
    model = randomized(FmFM(SIZES, [3, 2, 4, 1]))
    measured = spectrum.measure_moments(stored(model, tmp_path / "run"), ROWS)
    v = np.concatenate(vectors(model, ROWS), axis=1)
    p = 1 / (1 + np.exp(-literal_logits(model, ROWS)))
    np.testing.assert_allclose(measured.mean, np.average(v, axis=0, weights=p * (1 - p)), atol=1e-4)
    np.testing.assert_allclose(measured.covariance, np.cov(v.T, aweights=p * (1 - p), ddof=0), atol=1e-3)


def test_a_weighted_row_counts_like_several_rows(tmp_path):
    weights = stored(randomized(FmFM(SIZES, [3, 2, 4, 1])), tmp_path / "run")
    times = np.random.default_rng(3).integers(0, 4, len(ROWS))
    measured = spectrum.measure_moments(weights, ROWS, times.astype(np.float32))
    repeated = spectrum.measure_moments(weights, ROWS[np.repeat(np.arange(len(ROWS)), times)])
    np.testing.assert_allclose(measured.mean, repeated.mean, atol=1e-5)
    np.testing.assert_allclose(measured.covariance, repeated.covariance, atol=1e-4)


@pytest.mark.parametrize("rank", [3, 10])
def test_a_cut_spectrum_loses_a_quadratic_form_of_pairs_of_different_fields(rank, tmp_path):
    model = randomized(FmFM(SIZES, [3, 2, 4, 1], linear="both"))
    weights = stored(model, tmp_path / "run")
    moments = spectrum.measure_moments(weights, ROWS)
    cut = spectrum.cut(weights, rank, moments)
    lost = literal_logits(model, ROWS) - literal_logits(build_fm(weights, cut).eval(), ROWS)
    means = np.split(moments.mean, np.cumsum(weights.dims)[:-1])
    deviations = [rows - mean for rows, mean in zip(vectors(model, ROWS), means, strict=True)]
    expected = np.zeros(len(ROWS))
    for i, j in PAIRS:
        matrix = weights.blocks[i, j] - (cut.vectors[i] * cut.signs) @ cut.vectors[j].T
        expected += np.einsum("ra,ab,rb->r", deviations[i], matrix, deviations[j])
    np.testing.assert_allclose(lost, expected, atol=1e-4)
    assert (np.abs(lost).max() < 1e-4) == (rank == 10)


def test_a_linear_basis_is_the_singular_value_decomposition_without_centering():
    random = np.random.default_rng(0)
    table, counts = random.normal(size=(30, 4)) * [4, 2, 1, 0.1] + 1, random.integers(1, 9, 30)
    _, values, axes = np.linalg.svd(np.repeat(table, counts, axis=0), full_matrices=False)
    kept = np.cumsum(values**2) / np.sum(values**2)
    for variance in (0.5, 0.9, 0.99, 1.0):
        basis = principal_basis(table, counts, variance, centered=False)
        dim = next(d for d in range(1, 5) if kept[d - 1] >= variance - 1e-12)
        assert (basis.dim, basis.mean.any()) == (dim, False)
        np.testing.assert_allclose(basis.axes @ basis.onto.T, axes[:dim].T @ axes[:dim], atol=1e-9)


@pytest.mark.parametrize("linear", ["features", "fields", "both"])
@pytest.mark.parametrize("weighting", ["counts", "features", "interactions"])
def test_a_projection_that_keeps_all_variance_is_exact_for_any_list(linear, weighting):
    model = randomized(FmFM(SIZES, [3, 2, 4, 3], linear=linear))
    small = project(model, find_bases(model, occurrences(ROWS), weighting, 1.0))
    np.testing.assert_allclose(literal_logits(small, ROWS), literal_logits(model, ROWS), atol=1e-4)


def test_dimensions_are_those_that_the_lists_span():
    """Features that occur only together need one dimension for their sum."""
    model = randomized(FmFM(SIZES, [3, 2, 4, 3]))
    together = [[1, 2], [], [1, 2], [1, 2]]
    found = [np.ones(5), Lists.of(together), np.ones(4), Lists.of([[1], [2], [3], [1, 2, 3]])]
    assert [basis.dim for basis in find_bases(model, found, "counts", 1.0)] == [3, 1, 3, 3]
    assert [basis.dim for basis in find_bases(model, found, "features", 1.0)] == [3, 2, 3, 3]


def test_strengths_are_deviations_of_interactions_between_field_vectors():
    model = randomized(FmFM(SIZES, [3, 2, 4, 1]))
    strengths = pair_strengths(model, occurrences(ROWS))
    v = vectors(model, ROWS)
    for i, j in PAIRS:  # fields count as independent: every vector of one meets every vector of the other
        terms = (v[i] - v[i].mean(0)) @ model.field_matrix(i, j).double().numpy() @ (v[j] - v[j].mean(0)).T
        assert strengths[i, j] == pytest.approx(np.sqrt(np.mean(terms**2)), rel=1e-4)


@pytest.mark.parametrize("linear", ["features", "fields"])
def test_pruning_loses_only_the_interaction_proper(linear):
    model, pruned = randomized(FmFM(SIZES, [3, 2, 4, 1], linear=linear)), [(0, 1), (1, 3)]
    small = without_pairs(model, pruned, occurrences(ROWS))
    v = vectors(model, ROWS)
    deviations = [rows - rows.mean(0) for rows in v]
    expected = np.zeros(len(ROWS))
    for i, j in pruned:
        matrix = model.field_matrix(i, j).double().numpy()
        expected += np.einsum("ra,ab,rb->r", deviations[i], matrix, deviations[j])
    np.testing.assert_allclose(literal_logits(model, ROWS) - literal_logits(small, ROWS), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["fm", "fmfm"])
def test_shared_embeddings_are_read_once_for_all_their_fields(name, tmp_path):
    make = {"fm": FM, "fmfm": FmFM}[name]
    model = randomized(make(SHARED, 3, linear="both", owners=OWNERS))
    rows = random_rows(SHARED, LIST_FIELDS, rows=50)
    weights = stored(model, tmp_path / "run")
    assert weights.embeddings[0] is weights.embeddings[2] is weights.embeddings[3]
    for field in range(4):
        np.testing.assert_array_equal(weights.embeddings[field], model.embedding.rows(field).numpy())
    np.testing.assert_allclose(spectrum.exact_logits(weights, rows), literal_logits(model, rows), atol=5e-4)


def test_a_cut_of_shared_embeddings_is_exact_at_full_rank(tmp_path):
    """Every field has vectors of its own afterwards, because each has its own part of Q."""
    model = randomized(FmFM(SHARED, 3, linear="both", owners=OWNERS))
    rows = random_rows(SHARED, LIST_FIELDS, rows=50)
    weights = stored(model, tmp_path / "run")
    small = build_fm(weights, spectrum.cut(weights, 12)).eval()
    assert "owners" not in small.config
    np.testing.assert_allclose(literal_logits(small, rows), literal_logits(model, rows), atol=1e-3)


@pytest.mark.parametrize("weighting", ["counts", "features", "interactions"])
def test_fields_that_share_embeddings_have_one_basis(weighting):
    model = randomized(FmFM(SHARED, [4, 3, 4, 4], linear="both", owners=OWNERS))
    rows = random_rows(SHARED, LIST_FIELDS, rows=50)
    found = occurrences(rows, SHARED)
    bases = find_bases(model, found, weighting, 1.0)
    assert bases[0] is bases[2] is bases[3]
    small = project(model, bases)
    assert small.config["owners"] == OWNERS
    np.testing.assert_allclose(literal_logits(small, rows), literal_logits(model, rows), atol=5e-4)
    smaller = find_bases(model, found, weighting, 0.5)
    assert smaller[0].dim == smaller[3].dim < 4
    pruned = without_pairs(model, [(0, 3)], found)
    assert pruned.config["owners"] == OWNERS


@pytest.mark.parametrize("owners", [[0, 1, 3, 2], [3, 1, 3, 9], [0, 0, 2, 3], [3, 1, 3], "0133", [3, 1, 3, None]])
def test_impossible_owners_in_a_model_file_are_an_error(owners, tmp_path):
    model = randomized(FmFM(SHARED, 3))
    model.config["owners"] = owners
    with pytest.raises(Fm2Error, match=r"damaged|owner|cannot use the embeddings"):
        stored(model, tmp_path / "run")
