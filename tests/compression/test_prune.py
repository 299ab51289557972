"""fm2.prune: the weakest pairs of fields are removed, and stay at zero in later training."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from tests.helpers.planted import LEARNED, QUICK, SCHEMA, planted
from tests.helpers.runs import load_arrays

import fm2
from fm2 import Fm2Error, prepare
from fm2.artifacts.arrays import save_arrays
from fm2.artifacts.model_file import MODEL
from fm2.artifacts.run_directory import CHECKPOINT, SETTINGS
from fm2.artifacts.settings import read_settings
from fm2.cli.main import main
from fm2.compression.prune import pair_strengths, weakest_pairs, without_pairs
from fm2.compression.retraining import find_occurrences
from fm2.engine.inspect import operations
from fm2.models import FM, FmFM, FvFM, FwFM, build
from fm2.training.run import Run
from fm2.training.train import train

PAIRS = list(itertools.combinations(range(4), 2))
PRUNABLE = ["fwfm", "fvfm", "fmfm"]


def assert_pruned(run: Run, pruned: list[tuple[int, int]]) -> None:
    assert run.model.pruned == pruned
    for pair in PAIRS:
        assert bool(run.model.field_matrix(*pair).any()) == (pair not in pruned)


@pytest.fixture(scope="module", params=PRUNABLE)
def run(request, dataset, tmp_path_factory) -> Run:
    linear = {"fwfm": "fields", "fvfm": "both", "fmfm": "features"}[request.param]
    return train(
        request.param, dataset, tmp_path_factory.mktemp(request.param) / "run", **LEARNED, dim=3, linear=linear
    )


def test_strengths_follow_their_definition(run):
    """The standard deviation of the pair term without its one-feature parts, over all pairs of features."""
    random = np.random.default_rng(0)
    counts = [random.integers(0, 9, size).astype(float) for size in run.model.field_sizes]
    strengths = pair_strengths(run.model, counts)
    assert list(strengths) == PAIRS
    for i, j in PAIRS:
        p, q = counts[i] / counts[i].sum(), counts[j] / counts[j].sum()
        table = run.model.embedding.rows
        terms = (table(i) @ run.model.field_matrix(i, j) @ table(j).T).double().numpy()
        interaction = terms - (terms @ q)[:, None] - p @ terms + p @ terms @ q
        assert strengths[i, j] == pytest.approx(np.sqrt(np.sum(p[:, None] * q * interaction**2)), rel=1e-4)


def test_one_feature_parts_of_pruned_pairs_are_kept(run, dataset):
    """Pruning does not change the expected logit given one feature, if features are independent."""
    counts = find_occurrences(run, dataset)
    pruned = [(0, 1), (1, 3)]
    small = without_pairs(run.model, pruned, counts)
    random = np.random.default_rng(3)
    rows = torch.from_numpy(random.integers(1, 13, (50, 4)))
    with torch.no_grad():
        lost = (run.model(rows) - small(rows)).double().numpy()
    means = [count @ run.model.embedding.rows(f).numpy() / count.sum() for f, count in enumerate(counts)]
    expected = np.zeros(len(rows))
    for i, j in pruned:
        one, other = (run.model.embedding.rows(f).double().numpy()[rows[:, f]] - means[f] for f in (i, j))
        expected += np.einsum("ra,ab,rb->r", one, run.model.field_matrix(i, j).double().numpy(), other)
    np.testing.assert_allclose(lost, expected, atol=1e-5)
    assert np.std(lost) > 0.03


def test_pruned_pairs_stay_zero_through_training_resuming_and_new_data(run, dataset, tmp_path):
    pruned = []
    small = fm2.prune(
        run,
        dataset,
        tmp_path / "small",
        keep=0.5,
        epochs=1,
        on_pairs=lambda strengths, pairs: pruned.extend(pairs),
    )
    assert len(pruned) == 3
    assert_pruned(small, pruned)
    again = fm2.prune(run, dataset, tmp_path / "small", keep=0.5, epochs=3, resume=True)
    straight = fm2.prune(run, dataset, tmp_path / "straight", keep=0.5, epochs=3)
    assert_pruned(again, pruned)
    np.testing.assert_array_equal(again.probabilities(dataset.test.ids), straight.probabilities(dataset.test.ids))
    arrays, _ = load_arrays(tmp_path / "small" / CHECKPOINT)
    zero = (again.model.interaction.weight == 0).numpy()
    for part in ("", ".first", ".second", ".average"):
        assert not arrays[f"dense.interaction.weight{part}"][zero].any()
    assert_pruned(Run.open(tmp_path / "small"), pruned)
    fm2.compile(tmp_path / "small", tmp_path / "model.fm2")
    scored = fm2.load(tmp_path / "model.fm2").predict(np.asarray(dataset.test.ids))
    np.testing.assert_allclose(scored, again.probabilities(dataset.test.ids), atol=1e-5)
    new = prepare(planted(2000, seed=5, values=14), SCHEMA, tmp_path / "new")
    assert_pruned(train(run.model.name, new, tmp_path / "later", start=small, **QUICK), pruned)
    further = fm2.prune(small, new, tmp_path / "further", keep=0.2, epochs=1)
    assert len(further.model.pruned) == 5
    assert set(pruned) < set(further.model.pruned)
    for each in (small, further):  # a tenth of the first training's rates, however often it is pruned
        settings = read_settings(each.path / SETTINGS)
        assert (settings["learning_rate_scale"], settings["learning_rate"]) == (0.1, LEARNED["learning_rate"])
    assert set(fm2.prune(small, new, tmp_path / "no-more", keep=1.0, epochs=1).model.pruned) == set(pruned)


@pytest.mark.parametrize("make", [FwFM, FvFM, FmFM])
def test_a_torch_optimizer_leaves_pruned_pairs_at_zero(make):
    model = make([5, 6, 7, 4], 3, pruned=[(0, 2), [1, 3]])
    assert build(model.config).config == model.config
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    ids = torch.randint(0, 4, (64, 4), generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.softplus(model(ids)).sum().backward()
        optimizer.step()
    for pair in PAIRS:
        assert bool(model.field_matrix(*pair).any()) == (pair not in model.pruned)
        assert bool(model.field_matrix(*pair[::-1]).any()) == (pair not in model.pruned)


def test_operations_count_only_kept_pairs():
    dims, pruned = [2, 3, 4, 5], [(0, 1), (2, 3)]
    kept = [(2, 4), (2, 5), (3, 4), (3, 5)]
    model = FmFM([3] * 4, dims, pruned=pruned)
    assert model.flops() == sum(2 * a * b + 2 * min(a, b) + 1 for a, b in kept) + 8
    assert model.flops(cached=True) == sum(2 * min(a, b) + 1 for a, b in kept) + 4
    assert operations(model.config) == {"direct": model.flops(), "cached": model.flops(cached=True)}
    assert FwFM([3] * 4, 5, pruned=pruned).flops() == 4 * 12 + 8
    assert FvFM([3] * 4, 5, pruned=pruned).flops() == 4 * 16 + 8


def test_the_strongest_pairs_are_kept():
    strengths = {(0, 1): 3.0, (0, 2): 0.0, (1, 2): 5.0, (0, 3): 1.0}
    assert weakest_pairs(strengths, 1.0) == [(0, 2)]
    assert weakest_pairs(strengths, 0.5) == [(0, 2), (0, 3)]
    assert weakest_pairs(strengths, 0.01) == [(0, 1), (0, 2), (0, 3)]
    for keep in (0.0, -1.0, 1.1):
        with pytest.raises(Fm2Error, match="keep must be above 0 and at most 1, got"):
            weakest_pairs(strengths, keep)


def test_what_cannot_be_pruned_is_an_error(dataset, tmp_path):
    run = train("fm", dataset, tmp_path / "fm", **QUICK)
    with pytest.raises(Fm2Error, match="prune: expected a run of fwfm, fvfm, fmfm, got fm in"):
        fm2.prune(run, dataset, tmp_path / "none")
    with pytest.raises(Fm2Error, match="fm: cannot prune pairs, because no field matrix is trainable"):
        FM([3, 3], 2, pruned=[(0, 1)])
    for pair in ([1, 0], [0, 0], [0, 2], [0], [-1, 1]):
        with pytest.raises(Fm2Error, match="expected two fields i < j between 0 and 1"):
            FmFM([3, 3], 2, pruned=[pair])
    with pytest.raises(Fm2Error, match=r"has no settings\.toml"):
        run = train("fmfm", dataset, tmp_path / "fmfm", **QUICK)
        (run.path / "settings.toml").unlink()
        fm2.prune(run, dataset, tmp_path / "none")
    arrays, values = load_arrays(run.path / MODEL)
    save_arrays(run.path / MODEL, arrays, {**values, "model": {**values["model"], "pruned": [[0, 1]]}})
    with pytest.raises(Fm2Error, match=r"is damaged .* has other elements than its form or pruning allows"):
        Run.open(run.path)


def test_the_command_prunes(dataset, tmp_path, capsys):
    train("fmfm", dataset, tmp_path / "run", **LEARNED, dim=3)
    command = ["prune", str(tmp_path / "run"), str(dataset.path), "--out", str(tmp_path / "small"), "--epochs", "1"]
    (tmp_path / "settings.toml").write_text("dense_learning_rate = 0.001\n")
    assert main([*command, "--keep", "0.5", "--settings", str(tmp_path / "settings.toml")]) == 0
    printed = capsys.readouterr().out
    assert "kept 3 of 6 field pairs" in printed
    assert "on test" in printed
    assert "dense_learning_rate = 0.001" in (tmp_path / "small" / "settings.toml").read_text()
    assert main([*command, "--keep", "0.5", "--overwrite", "--json"]) == 0
    full, small = json.loads(capsys.readouterr().out)
    assert full["flops"] - small["flops"] == 3 * 7
    assert len(Run.open(tmp_path / "small").model.pruned) == 3
    assert main([*command, "--keep", "2"]) == 1
    assert main(["evaluate", str(tmp_path / "small"), str(dataset.path)]) == 0


def test_a_model_without_interactions_is_a_warning(dataset, tmp_path, capsys):
    train(
        "fmfm",
        dataset,
        tmp_path / "run",
        **{**QUICK, "learning_rate": 1e-9, "dense_learning_rate": 1e-9, "matrix_std": 1e-6},
    )
    command = ["prune", str(tmp_path / "run"), str(dataset.path), "--keep", "0.5", "--epochs", "1"]
    assert main([*command, "--out", str(tmp_path / "pruned")]) == 0
    assert "the model has learned no interactions" in capsys.readouterr().err
