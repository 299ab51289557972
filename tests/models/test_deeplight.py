"""DeepLight: its equation, its pruning schedule, and its sparse scoring."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import ONE_THREAD, backend_for, learn, prune, random_rows, small, torch_backend_for
from tests.helpers.planted import QUICK
from tests.helpers.runs import compare_runs

from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.models.deep.deeplight import LightScoring
from fm2.training.progress import TrainingDisplay
from fm2.training.run import Run
from fm2.training.scorer import make_scorer
from fm2.training.train import train

TARGETS = {"network_sparsity": 0.9, "pair_sparsity": 0.5, "embedding_sparsity": 0.4}
SOON = {**TARGETS, "warm_up": 6, "prune_every": 3, "damping": 0.9, "damping_steps": 1.0}
PARTS = {"network": 0.9, "pairs": 0.5, "embeddings": 0.4}


def literal(model, p, vectors):
    """Return a row's logit by a loop over pairs."""
    pairs = itertools.combinations(range(len(vectors)), 2)
    weighted = [vectors[i] @ vectors[j] * p["interaction.weight"][index, 0] for index, (i, j) in enumerate(pairs)]
    return sum(weighted) + perceptron(p, torch.cat(vectors))


def test_logits_and_gradients_follow_the_equation():
    assert_follows(random_model("deeplight"), literal)


@pytest.mark.parametrize("make_backend", [backend_for, torch_backend_for])
@pytest.mark.parametrize("changes", [{"ema_decay": 0.9, "l2": 0.01, "weight_decay": 0.1}, {"optimizer": "adagrad"}])
def test_sparsity_follows_the_schedule_and_pruned_weights_stay_zero(make_backend, changes):
    backend = make_backend("deeplight", **SOON, hidden=(40, 30), dim=8, field_dropout=0.2, **changes)
    ids, labels = random_rows(100)
    pruned = {}
    for step in range(1, 41):
        learn(backend, ids, labels, 1)
        k = max(0, step - 6) // 3 * 3
        for part, share in backend.model.sparsity().items():
            assert share == pytest.approx(PARTS[part] * (1 - 0.9**k), abs=0.09 if part == "pairs" else 0.005)
        for name, values in (*backend.model.named_parameters(), *named_weights(backend)):
            zero = values.detach() == 0
            assert not (pruned.get(name, zero) & ~zero).any(), name
            pruned[name] = zero
    assert all(share > 0.3 for share in backend.model.sparsity().values())
    zeros = {name: int((torch.from_numpy(values) == 0).sum()) for name, values in backend.weights().items()}
    for name, values in backend.model.named_parameters():  # averaged weights have the same zeros
        assert zeros[name] == int((values == 0).sum())


def named_weights(backend):
    return [(f"average {name}", torch.from_numpy(np.array(v))) for name, v in backend.weights().items()]


def test_native_and_torch_backends_prune_the_same_weights():
    changes = {**SOON, "ema_decay": 0.9, "l2": 0.01, "learning_rate": 0.02}
    native_backend, torch_backend = backend_for("deeplight", **changes), torch_backend_for("deeplight", **changes)
    ids, labels = random_rows(100)
    np.testing.assert_allclose(learn(native_backend, ids, labels, 20), learn(torch_backend, ids, labels, 20), rtol=1e-3)
    assert native_backend.model.sparsity() == torch_backend.model.sparsity()
    assert native_backend.model.sparsity()["network"] > 0.5


def test_a_copied_model_keeps_its_zeros():
    """Torch copies parameters without their hooks, and the hooks keep pruned weights at zero."""
    model = small("deeplight", network_sparsity=0.5, pair_sparsity=0.5, warm_up=0)
    prune(model, step=20 * 1000)
    copied = copy.deepcopy(model)
    copied.begin_step(0, 1)
    copied(torch.from_numpy(random_rows(100)[0])).square().sum().backward()
    for weight in copied.prunable_weights():
        assert (weight == 0).any()
        assert not weight.grad[weight == 0].any()
        assert weight.grad[weight != 0].any()


def test_a_target_of_zero_prunes_nothing():
    backend = backend_for("deeplight", **{**SOON, "embedding_sparsity": 0.0, "pair_sparsity": 0.0})
    learn(backend, *random_rows(100), 20)
    sparsity = backend.model.sparsity()
    assert sparsity["embeddings"] == sparsity["pairs"] == 0
    assert sparsity["network"] > 0.5


@pytest.mark.parametrize("name", ["embedding_std", "matrix_std"])
def test_initial_weights_of_zero_raise_an_error(name):
    with pytest.raises(Fm2Error, match=f"deeplight: {name} must not be 0, because weights that are zero stay zero"):
        small("deeplight", **{name: 0.0})


def test_the_largest_pair_is_never_pruned():
    backend = backend_for("deeplight", sizes=[5, 4, 6], **{**SOON, "pair_sparsity": 0.9})
    learn(backend, *random_rows(100, [5, 4, 6]), 40)
    assert backend.model.interaction.weight.count_nonzero() == 1


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return train("deeplight", dataset, tmp_path_factory.mktemp("light") / "run", **settings())


def settings(**changes):
    rates = {"learning_rate": 0.01, "dense_learning_rate": 0.005, "dim": 4, "seed": 3}
    network = {**SOON, "hidden": (32, 16), "batch_norm": True, "network_dropout": 0.1}
    return {**QUICK, **ONE_THREAD, **rates, **network, **changes}


def test_an_interrupted_run_that_prunes_resumes_bit_for_bit(run, dataset, tmp_path):
    def interrupt(report):
        if report.begun == 0 and report.rows > 64 * 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("deeplight", dataset, tmp_path / "resumed", callback=interrupt, **settings())
    train("deeplight", dataset, tmp_path / "resumed", resume=True)
    compare_runs(run.path, tmp_path / "resumed")


def test_a_saved_model_is_sparse_and_stays_sparse_after_a_warm_start(run, dataset, tmp_path):
    saved = Run.open(run.path).model
    assert all(share == pytest.approx(PARTS[part], abs=0.1) for part, share in saved.sparsity().items())
    changes = {name: settings()[name] for name in SOON}
    warm = train("deeplight", dataset, tmp_path / "warm", start=run, **{**QUICK, **ONE_THREAD, **changes, "epochs": 1})
    for name, before in saved.named_parameters():
        if name in ("embedding.weight", "interaction.weight", "mlp.layers.0.weight"):
            assert not warm.model.get_parameter(name)[before == 0].any()


def test_a_run_that_ends_before_the_target_sparsity_reports_it(dataset, tmp_path):
    watcher = TrainingDisplay(terminal=False)
    train("deeplight", dataset, tmp_path / "run", callback=watcher, **settings(epochs=1, warm_up=10**6))
    assert "the target sparsity was not reached, continue with --resume --epochs N" in watcher.summary()


def test_a_state_before_the_target_sparsity_is_never_the_best(dataset, tmp_path):
    """With a learning rate that is too high, the first evaluation is the best, but not yet sparse."""
    too_high = {"dense_learning_rate": 0.3, "patience": 1, "evaluations_per_epoch": 4, "epochs": 3}
    slow = {"damping_steps": 1.5, "warm_up": 20}
    run = train("deeplight", dataset, tmp_path / "run", **settings(**too_high, **slow))
    assert run.model.sparsity()["network"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_sparse_and_dense_products_score_the_same(batch_norm):
    model = random_model("deeplight", hidden=(40, 30), batch_norm=batch_norm, network_sparsity=0.9, warm_up=0).float()
    if batch_norm:
        for norm in model.mlp.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    assert make_scorer(model).model is model
    prune(model, step=20 * 100)
    light = make_scorer(model, threads=1)
    assert isinstance(light.model, LightScoring)
    ids = random_rows(300)[0]
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(ids)).numpy()
    for rows in (300, 1, 129):
        np.testing.assert_allclose(light.score(EncodedRows(ids[:rows])), expected[:rows], rtol=1e-4, atol=1e-4)


def test_a_sparse_run_predicts_like_its_model(run, dataset):
    ids = np.array(dataset.validation.ids)
    assert isinstance(run._scorer.model, LightScoring)
    with torch.no_grad():
        expected = torch.sigmoid(run.model.eval()(torch.from_numpy(ids))).numpy()
    np.testing.assert_allclose(run.probabilities(ids), expected, atol=1e-5)
