"""Compiled models with pruned pairs score like PyTorch and store nothing for the pruned pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import fm2
from fm2 import Field, Schema
from fm2.artifacts.model_file import MODEL, save_model
from fm2.compression.weights import read_weights
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import compile
from fm2.engine.inspect import inspect
from fm2.engine.matrix_plans import cached_features, field_orders, preceding_matrices
from fm2.engine.scorer import load
from fm2.models import build
from fm2.training.run import Run

N = 12
NAMES = [f"c{field}" for field in range(N)]
PAIRS = list(itertools.combinations(range(N), 2))
DIMS = {"fwfm": [3] * N, "fvfm": [8] * N, "fmfm": [5, 1, 16, 8, 2, 9, 1, 3, 4, 8, 24, 6]}
KEEPS = (0.0, 0.1, 0.5, 1.0)


def make_run(folder, name: str, keep: float, dims: list[int] | None = None) -> Run:
    """Save a model with random weights and a share of its pairs as a run."""
    random = np.random.default_rng(1)
    order = random.permutation(len(PAIRS))
    pruned = [list(PAIRS[index]) for index in sorted(order[round(keep * len(PAIRS)) :])]
    sizes = [5 + 7 * field % 31 for field in range(N)]
    shape = {"field_sizes": sizes, "dims": dims or DIMS[name], "linear": "features", "pruned": pruned}
    model = build({"model": name, **shape, "embedding_std": 0.3, "interaction_std": 0.5})
    vocabularies = [Vocabulary.of([f"v{v}" for v in range(size - 1)], range(size, 1, -1)) for size in sizes]
    weights = {key: parameter.detach().numpy() for key, parameter in model.named_parameters()}
    folder.mkdir(exist_ok=True)
    schema = Schema([Field(column, min_count=1) for column in NAMES], label="click")
    save_model(folder / MODEL, model, weights, schema, vocabularies, {})
    return Run.open(folder)


def draw(run: Run, rows: int = 200) -> np.ndarray:
    return np.random.default_rng(0).integers(0, run.model.field_sizes, (rows, N)).astype(np.int32)


def logits_of(run: Run, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return run.model(torch.from_numpy(ids)).numpy()


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("name", DIMS)
def test_every_plan_and_dtype_agrees_with_torch(tmp_path, name, keep):
    run = make_run(tmp_path / "run", name, keep)
    ids, path = draw(run), tmp_path / "model.fm2"
    expected = logits_of(run, ids)
    for plan, memory in (("direct", 0), ("cached", 1e9), ("cached", 3000)):
        for dtype, tolerance in (("f32", 1e-5), ("f16", 5e-3), ("i8", 0.3)):
            for level in fm2.cpu_info()["levels"]:
                compile(run.path, path, plan=plan, memory=memory, dtype=dtype)
                logits = np.empty(len(ids), np.float32)
                load(path).native.score(ids, logits, 0, level)
                np.testing.assert_allclose(logits, expected, atol=tolerance, err_msg=f"{plan} {memory} {dtype} {level}")


@pytest.mark.parametrize("plan", ["direct", "cached"])
@pytest.mark.parametrize("name", DIMS)
def test_pruned_models_rank_and_explain(tmp_path, name, plan):
    run = make_run(tmp_path / "run", name, keep=0.3)
    compile(run.path, tmp_path / "model.fm2", plan=plan)
    scorer, ids = load(tmp_path / "model.fm2"), draw(run)
    context = [1, 4, 5, 10]
    candidate = [field for field in range(N) if field not in context]
    ids[:, context] = ids[0, context]
    ranker = scorer.ranker(context=[NAMES[field] for field in context])
    expected = run.probabilities(ids)
    ranked = ranker.rank(ids[0, context], ids[:, candidate])
    np.testing.assert_allclose(ranked.probabilities, expected[ranked.indices], atol=1e-5)
    top = ranker.catalog(ids[:, candidate]).top(ids[0, context], k=20)
    np.testing.assert_allclose(top.probabilities, np.sort(expected)[::-1][:20], atol=1e-5)
    explanation = scorer.explain(dict(zip(NAMES, [f"v{id - 1}" for id in ids[0]], strict=True)))
    assert explanation.logit == pytest.approx(float(logits_of(run, ids[:1])[0]), abs=1e-5)
    rows = [run.model.embedding.rows(field)[id] for field, id in enumerate(ids[0])]
    for i, j in PAIRS:
        term = float(rows[i] @ run.model.field_matrix(i, j) @ rows[j])
        assert explanation.pairs[NAMES[i], NAMES[j]] == pytest.approx(term, abs=1e-5)
        assert bool(explanation.pairs[NAMES[i], NAMES[j]]) == ((i, j) not in run.model.pruned)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize("memory", [0, 3000, 1e9])
@pytest.mark.parametrize("name", DIMS)
def test_contributions_add_up_to_the_logit_despite_rounding(tmp_path, name, memory, dtype):
    run = make_run(tmp_path / "run", name, keep=0.5)
    compile(run.path, tmp_path / "model.fm2", plan="cached", memory=memory, dtype=dtype)
    scorer = load(tmp_path / "model.fm2")
    for row in draw(run, rows=20):
        explanation = scorer.explain(row)
        assert explanation.logit == pytest.approx(float(scorer.logits(row[None])[0]), abs=1e-5)
        assert max(abs(term) for term in explanation.pairs.values()) > 0.01


@pytest.mark.parametrize("name", DIMS)
def test_pruned_pairs_are_not_stored(tmp_path, name):
    """With dimensions that are multiples of eight, only the products and matrix entries of kept pairs remain."""
    runs = [make_run(tmp_path / f"{keep}", name, keep, dims=[16] * N) for keep in (1.0, 0.25)]
    kept = [len(PAIRS), round(0.25 * len(PAIRS))]
    for run, pairs in zip(runs, kept, strict=True):
        weights = read_weights(run.path)
        for order in field_orders(weights).values():
            matrices = list(preceding_matrices(weights, order))
            assert sum(len(matrix.columns) for matrix in matrices) == 16 * pairs
            assert sum(matrix.matrix.size for matrix in matrices) == 16 * pairs * (16 if name == "fmfm" else 1)
            assert all(len(matrix.ranges) == 1 for matrix in matrices[1:]) or pairs < len(PAIRS)
        assert inspect(run.path)["parameters"] == run.model.n_parameters
    per_pair = {"fwfm": 1, "fvfm": 16, "fmfm": 256}[name]
    assert runs[0].model.n_parameters - runs[1].model.n_parameters == per_pair * (kept[0] - kept[1])
    for plan in ("direct", "cached"):
        sizes = [compile(run.path, tmp_path / "model.fm2", plan=plan).bytes for run in runs]
        assert sizes[1] < sizes[0] * (0.6 if plan == "cached" or name == "fmfm" else 1)


def test_more_features_are_cached_in_the_same_memory(tmp_path):
    cached = []
    for keep in (1.0, 0.3):
        weights = read_weights(make_run(tmp_path / f"{keep}", "fmfm", keep).path)
        order = field_orders(weights)["by size"]
        cached.append(sum(cached_features(weights, order, "f32", 8000)))
    assert cached[0] < cached[1] < sum(weights.sizes)
