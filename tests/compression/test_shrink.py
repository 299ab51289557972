"""fm2.shrink: dimensions by PCA, compared with SVD and planted ones; projected models; the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.helpers.planted import LEARNED, QUICK

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.compression.dimensions import find_bases, principal_basis
from fm2.compression.retraining import find_occurrences, temporary_run
from fm2.compression.shrink import compare, project
from fm2.training.run import Run
from fm2.training.train import train

FIXED = {"epochs": 1, "learning_rate_scale": 0.0}  # a training that changes nothing


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory) -> Run:
    return train("fmfm", dataset, tmp_path_factory.mktemp("first") / "run", **LEARNED, dim=5)


def test_components_agree_with_svd():
    """By definition: repeat every row by its count, center, and sum the squared singular values."""
    random = np.random.default_rng(0)
    table = random.normal(size=(30, 6)) * [5, 3, 2, 1, 0.5, 0.1] + 2
    counts = random.integers(0, 20, 30)
    rows = np.repeat(table, counts, axis=0)
    _, values, axes = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    kept = np.cumsum(values**2) / np.sum(values**2)
    for variance in (0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999, 1.0):
        basis = principal_basis(table, counts, variance)
        dim = next(d for d in range(1, 7) if kept[d - 1] >= variance - 1e-12)
        assert basis.dim == dim
        np.testing.assert_allclose(basis.mean, rows.mean(0))
        np.testing.assert_allclose(basis.axes @ basis.axes.T, axes[:dim].T @ axes[:dim], atol=1e-9)


def test_a_planted_dimension_is_found():
    random = np.random.default_rng(1)
    table = random.normal(size=(200, 3)) @ random.normal(size=(3, 8)) + random.normal(size=8)
    table += random.normal(size=table.shape) * 1e-3
    table[0] = 100  # never occurs
    counts = np.r_[0, random.integers(1, 50, 199)]
    for weights in (counts, np.minimum(counts, 1)):
        assert principal_basis(table, weights, 0.9999).dim == 3
        assert principal_basis(table, weights, 1.0).dim == 8
    alike = np.tile(random.normal(size=8), (7, 1))
    assert principal_basis(alike, counts[1:8], 1.0).dim == 1


def test_a_metric_decides_which_directions_count():
    """By definition: PCA after a multiplication by the metric's fourth root, and back."""
    random = np.random.default_rng(2)
    table, counts = random.normal(size=(40, 5)), random.integers(1, 9, 40)
    half = random.normal(size=(5, 5))
    values, axes = np.linalg.eigh(half @ half.T)
    root = axes @ np.diag(values**0.25) @ axes.T
    rows = np.repeat(table, counts, axis=0)
    _, _, directions = np.linalg.svd((rows - rows.mean(0)) @ root, full_matrices=False)
    for variance in (0.5, 0.9, 1.0):
        basis = principal_basis(table, counts, variance, half @ half.T)
        kept = directions[: basis.dim].T
        expected = (rows - rows.mean(0)) @ root @ kept @ kept.T @ np.linalg.inv(root)
        np.testing.assert_allclose((rows - basis.mean) @ basis.onto @ basis.axes.T, expected, atol=1e-9)
        np.testing.assert_allclose(basis.onto.T @ basis.onto, np.eye(basis.dim), atol=1e-12)
    blind = np.diag([1.0, 1.0, 1e-30, 1e-30, 1e-30])
    assert principal_basis(table, counts, 0.95, blind).dim == 2
    assert principal_basis(table, counts, 0.95, 0 * blind).dim == principal_basis(table, counts, 0.95).dim


def test_directions_that_no_field_matrix_uses_cost_no_dimension(dataset, tmp_path):
    """Field matrices use the first coordinate of one field, and the last two of another."""
    run = train("fmfm", dataset, tmp_path / "run", **LEARNED, dim=5)
    matrices = [run.model.interaction.field_matrix(i, j) for i in range(4) for j in range(i + 1, 4)]
    for matrix in matrices[:3]:
        matrix[1:] = 0
    for matrix in (matrices[0], *matrices[3:5]):
        (matrix.T if matrix is matrices[0] else matrix)[:3] = 0
    counts = find_occurrences(run, dataset)
    assert [basis.dim for basis in find_bases(run.model, counts, "interactions", 0.99)][:2] == [1, 2]
    assert [basis.dim for basis in find_bases(run.model, counts, "counts", 0.99)][:2] != [1, 2]
    with pytest.raises(Fm2Error, match="weighting must be one of counts, features, interactions, authors, got 'rows'"):
        find_bases(run.model, counts, "rows", 0.9)


def test_the_weighting_of_the_paper_code(run, dataset):
    """PCA of a field's embeddings without row 0: the first k whose cumulative variance exceeds the share, from 2 on."""
    model = run.model
    for variance in (0.3, 0.6, 0.95):
        bases = find_bases(model, find_occurrences(run, dataset), "authors", variance)
        for field, basis in enumerate(bases):
            known = model.embedding.rows(field).detach().numpy()[1:].astype(np.float64)
            variances = np.linalg.svd(known - known.mean(0), compute_uv=False) ** 2
            exceeds = np.cumsum(variances) / variances.sum() > variance
            assert basis.dim == max(2, int(np.argmax(exceeds)) + 1)


def test_features_are_counted_in_the_training_rows(run, dataset):
    counts = find_occurrences(run, dataset)
    for field, count in enumerate(counts):
        expected = np.bincount(dataset.train.ids[:, field], minlength=run.model.field_sizes[field])
        np.testing.assert_array_equal(count, expected)


@pytest.mark.parametrize(
    ("linear", "weighting"), [("features", "counts"), ("fields", "features"), ("both", "interactions")]
)
def test_a_projected_model_is_the_first_one_with_projected_embeddings(linear, weighting, dataset, tmp_path):
    """v becomes mean + P Oᵀ (v - mean); weights per feature keep the linear part of the loss."""
    run = train("fmfm", dataset, tmp_path / "run", **LEARNED, dim=[5, 4, 5, 3], linear=linear)
    model, ids = run.model, np.asarray(dataset.test.ids[:200])
    bases = find_bases(model, find_occurrences(run, dataset), weighting, 0.7)
    assert sum(basis.dim for basis in bases) < 17
    table = [model.embedding.rows(field).double().numpy() for field in range(4)]
    v = [table[field][ids[:, field]] for field in range(4)]
    seen = [basis.mean + (rows - basis.mean) @ basis.onto @ basis.axes.T for rows, basis in zip(v, bases, strict=True)]
    w = np.zeros(17) if model.field_linear is None else model.field_linear.detach().double().numpy()
    vectors = np.split(w, model.embedding.starts[1:])
    expected = np.full(len(ids), model.bias.item())
    for i in range(4):
        expected += seen[i] @ vectors[i]
        if model.linear is not None:
            expected += model.linear.rows(i).double().numpy()[ids[:, i], 0] + (v[i] - seen[i]) @ vectors[i]
        for j in range(4):
            if i == j:
                continue
            matrix = model.field_matrix(i, j).double().numpy()
            expected += np.einsum("ra,ab,rb->r", seen[i], matrix, seen[j]) / 2
            if model.linear is not None:
                expected += (v[i] - seen[i]) @ matrix @ bases[j].mean
    with temporary_run(project(model, bases), run, tmp_path / "small") as start:
        probabilities = Run.open(start).probabilities(ids)
    logits = np.log(probabilities / (1 - probabilities))
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    old = run.probabilities(ids)
    assert np.std(np.log(old / (1 - old)) - logits) > 0.03


@pytest.mark.parametrize("weighting", ["counts", "features", "interactions"])
def test_a_warm_start_at_full_variance_predicts_the_same(weighting, run, dataset, tmp_path):
    same = fm2.shrink(
        run, dataset, tmp_path / "same", variance=1.0, weighting=weighting, warm=True, **{**LEARNED, **FIXED}
    )
    ids = dataset.test.ids
    assert np.std(run.probabilities(ids)) > 0.05
    np.testing.assert_allclose(same.probabilities(ids), run.probabilities(ids), atol=1e-5)


def test_a_second_pass_has_fewer_dimensions(run, dataset, tmp_path):
    bases = []
    small = fm2.shrink(run, dataset, tmp_path / "small", variance=0.6, on_bases=bases.extend, epochs=1)
    dims = [basis.dim for basis in bases]
    assert small.model.config["dims"] == dims
    assert max(dims) < 5
    again = fm2.shrink(run.path, dataset.path, tmp_path / "small", variance=0.6, resume=True, epochs=2)
    straight = fm2.shrink(run, dataset, tmp_path / "straight", variance=0.6, epochs=2)
    np.testing.assert_array_equal(again.probabilities(dataset.test.ids), straight.probabilities(dataset.test.ids))
    warm = fm2.shrink(run, dataset, tmp_path / "warm", variance=0.6, warm=True, epochs=1)
    assert warm.model.config["dims"] == dims
    more = fm2.shrink(run, dataset, tmp_path / "warm", variance=0.6, warm=True, epochs=2, resume=True)
    assert more.metrics["log_loss"] <= warm.metrics["log_loss"]


def test_what_cannot_be_shrunk_is_an_error(run, dataset, tmp_path):
    fwfm = train("fwfm", dataset, tmp_path / "fwfm", **QUICK)
    with pytest.raises(Fm2Error, match="shrink: expected a run of fmfm, got fwfm in"):
        fm2.shrink(fwfm, dataset, tmp_path / "none")
    with pytest.raises(Fm2Error, match=r"variance must be above 0 and at most 1, got 95\.0"):
        fm2.shrink(run, dataset, tmp_path / "none", variance=95.0)
    with pytest.raises(Fm2Error, match="is the source run; choose another out="):
        fm2.shrink(run, dataset, run.path, overwrite=True)
    with pytest.raises(Fm2Error, match="remove dim from the settings"):
        fm2.shrink(run, dataset, tmp_path / "none", dim=4)
    pruned = fm2.prune(run, dataset, tmp_path / "pruned", keep=0.5, epochs=1)
    with pytest.raises(Fm2Error, match="is pruned, and training from scratch would undo that; use warm=True"):
        fm2.shrink(pruned, dataset, tmp_path / "none")
    both = fm2.shrink(pruned, dataset, tmp_path / "both", variance=0.6, warm=True, epochs=1)
    assert both.model.pruned == pruned.model.pruned
    assert not (tmp_path / "none").exists()


def test_the_command_makes_the_papers_table(run, dataset, tmp_path, capsys):
    out = tmp_path / "by-variance"
    command = ["shrink", str(run.path), str(dataset.path), "--out", str(out), "--epochs", "1", "--seed", "3"]
    assert main([*command, "--variance", "0.5,0.9"]) == 0
    printed = capsys.readouterr().out
    assert "\nmean " in printed
    assert "on test" in printed
    rows = json.loads((out / "table.json").read_text())
    assert [row["variance"] for row in rows] == [None, 0.5, 0.9]
    assert rows[0]["flops"] == 6 * 11 + 8
    assert rows[1]["dimension"] < rows[2]["dimension"] < rows[0]["dimension"] == 5
    for row in rows[1:]:
        small = Run.open(out / f"variance-{row['variance']}")
        assert row["auc"] == small.evaluate(dataset)["auc"]
        assert row["flops"] == small.model.flops(cached=True)
    assert main([*command, "--variance", "0.5,0.9"]) == 1
    assert "already exists; use --resume to continue it or --overwrite to replace it" in capsys.readouterr().err
    assert main([*command, "--variance", "0.5,0.9,0.99", "--resume", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again[:3] == rows
    one = [*command[:4], str(tmp_path / "one"), *command[5:], "--variance", "0.9", "--warm", "--weighting", "features"]
    assert main(one) == 0
    assert Run.open(tmp_path / "one").model.config["dims"] != [5] * 4
    for wrong in (["--variance", "0.5,2"], ["--threads", "-1"]):
        assert main([*command, *wrong]) == 1
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--variance", "x"])


def test_several_variances_need_directories_and_one_of_resume_and_overwrite(run, dataset, tmp_path):
    with pytest.raises(Fm2Error, match=r"0\.9 and 0\.9000001 would both be written to .*variance-0\.9; remove one"):
        compare(run, dataset, tmp_path / "both", [0.9, 0.9000001])
    with pytest.raises(Fm2Error, match="shrink: resume=True continues a run and overwrite=True replaces it"):
        compare(run, dataset, tmp_path / "both", [0.5, 0.9], resume=True, overwrite=True)
    assert not (tmp_path / "both").exists()
