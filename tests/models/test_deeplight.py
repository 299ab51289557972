"""DeepLight calculates what its equation says, becomes as sparse as its schedule tells, and stays so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.network_formulas import FORMULAS
from tests.helpers.networks import PAPER, counted_flops, random_rows, small
from tests.helpers.planted import QUICK
from tests.helpers.runs import compare_runs
from tests.models.test_deep_contract import ONE_THREAD, backend_for, learn

from fm2.errors import Fm2Error
from fm2.models import build
from fm2.models.deep.light_scoring import LightScoring
from fm2.training.progress import ProgressLine
from fm2.training.run import Run
from fm2.training.scorer import make_scorer
from fm2.training.torch_backend import TorchBackend
from fm2.training.train import train

TARGETS = {"network_sparsity": 0.9, "pair_sparsity": 0.5, "embedding_sparsity": 0.4}
SOON = {**TARGETS, "warm_up": 6, "prune_every": 3, "damping": 0.9, "damping_steps": 1.0}
PARTS = {"network": 0.9, "pairs": 0.5, "embeddings": 0.4}


def literal(model, p, vectors):
    """Give a row's logit by a loop over pairs."""
    pairs = itertools.combinations(range(len(vectors)), 2)
    weighted = [vectors[i] @ vectors[j] * p["interaction.weight"][at, 0] for at, (i, j) in enumerate(pairs)]
    return sum(weighted) + perceptron(p, torch.cat(vectors))


def test_logits_and_gradients_are_those_of_the_equation():
    assert_follows(random_model("deeplight"), literal)


@pytest.mark.parametrize("kind", ["native", "plain"])
@pytest.mark.parametrize("changes", [{"ema_decay": 0.9, "l2": 0.01, "weight_decay": 0.1}, {"optimizer": "adagrad"}])
def test_its_sparsity_is_that_of_the_schedule_and_what_is_pruned_stays_zero(kind, changes):
    backend = backend_for("deeplight", **SOON, hidden=(40, 30), dim=8, field_dropout=0.2, **changes)
    if kind == "plain":
        spread = {key: np.ones(table.weight.numel(), np.float32) for key, table in backend.model.tables.items()}
        backend = TorchBackend(backend.model, backend.settings, spread)
    ids, labels = random_rows(100)
    gone = {}
    for step in range(1, 41):
        learn(backend, ids, labels, 1)
        k = max(0, step - 6) // 3 * 3
        for part, share in backend.model.sparsity().items():
            assert share == pytest.approx(PARTS[part] * (1 - 0.9**k), abs=0.09 if part == "pairs" else 0.005)
        for name, values in (*backend.model.named_parameters(), *named_weights(backend)):
            zero = values.detach() == 0
            assert not (gone.get(name, zero) & ~zero).any(), name
            gone[name] = zero
    assert all(share > 0.3 for share in backend.model.sparsity().values())
    zeros = {name: int((torch.from_numpy(values) == 0).sum()) for name, values in backend.weights().items()}
    for name, values in backend.model.named_parameters():  # averaged weights have the same zeros
        assert zeros[name] == int((values == 0).sum())


def named_weights(backend):
    return [(f"average {name}", torch.from_numpy(np.array(v))) for name, v in backend.weights().items()]


def test_native_steps_are_torchs_steps_while_it_prunes():
    changes = {**SOON, "ema_decay": 0.9, "l2": 0.01, "learning_rate": 0.02}
    native, plain = backend_for("deeplight", **changes), backend_for("deeplight", **changes)
    spread = {key: np.ones(table.weight.numel(), np.float32) for key, table in plain.model.tables.items()}
    plain = TorchBackend(plain.model, plain.settings, spread)
    ids, labels = random_rows(100)
    np.testing.assert_allclose(learn(native, ids, labels, 20), learn(plain, ids, labels, 20), rtol=1e-3)
    assert native.model.sparsity() == plain.model.sparsity()


def test_a_target_of_zero_prunes_nothing():
    backend = backend_for("deeplight", **{**SOON, "embedding_sparsity": 0.0, "pair_sparsity": 0.0})
    learn(backend, *random_rows(100), 20)
    found = backend.model.sparsity()
    assert found["embeddings"] == found["pairs"] == 0
    assert found["network"] > 0.5


@pytest.mark.parametrize("name", ["embedding_std", "matrix_std"])
def test_weights_that_would_begin_at_zero_and_never_move_are_refused(name):
    with pytest.raises(Fm2Error, match=f"deeplight: {name} is 0; what begins at zero would stay there"):
        small("deeplight", **{name: 0.0})


def test_of_few_pairs_one_is_left():
    backend = backend_for("deeplight", sizes=[5, 4, 6], **{**SOON, "pair_sparsity": 0.9})
    learn(backend, *random_rows(100, [5, 4, 6]), 40)
    assert backend.model.interaction.weight.count_nonzero() == 1


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return train("deeplight", dataset, tmp_path_factory.mktemp("light") / "whole", **settings())


def settings(**changes):
    rates = {"learning_rate": 0.01, "dense_learning_rate": 0.005, "dim": 4, "seed": 3}
    network = {**SOON, "hidden": (32, 16), "batch_norm": True, "network_dropout": 0.1}
    return {**QUICK, **ONE_THREAD, **rates, **network, **changes}


def test_a_run_that_prunes_resumes_bit_for_bit(run, dataset, tmp_path):
    def interrupt(report):
        if report.begun == 0 and report.rows > 64 * 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("deeplight", dataset, tmp_path / "parts", callback=interrupt, **settings())
    train("deeplight", dataset, tmp_path / "parts", resume=True)
    compare_runs(run.path, tmp_path / "parts")


def test_what_is_saved_is_sparse_and_stays_so_when_trained_on(run, dataset, tmp_path):
    saved = Run.open(run.path).model
    assert all(share == pytest.approx(PARTS[part], abs=0.1) for part, share in saved.sparsity().items())
    changes = {name: settings()[name] for name in SOON}
    further = train("deeplight", dataset, tmp_path / "on", start=run, **{**QUICK, **ONE_THREAD, **changes, "epochs": 1})
    for name, before in saved.named_parameters():
        if name in ("embedding.weight", "interaction.weight", "mlp.layers.0.weight"):
            assert not further.model.get_parameter(name)[before == 0].any()


def test_a_training_that_ends_before_all_is_pruned_says_so(dataset, tmp_path):
    watcher = ProgressLine(terminal=False)
    train("deeplight", dataset, tmp_path / "run", callback=watcher, **settings(epochs=1, warm_up=10**6))
    assert "not yet as sparse as it was asked to become: --resume with more --epochs" in watcher.closing()


def test_a_state_that_is_not_sparse_yet_is_never_the_best(dataset, tmp_path):
    """A rate that ruins the model soon leaves the first evaluation the best one, if it counts."""
    ruin = {"dense_learning_rate": 0.3, "patience": 1, "evaluations_per_epoch": 4, "epochs": 3}
    slow = {"damping_steps": 1.5, "warm_up": 20}
    found = train("deeplight", dataset, tmp_path / "run", **settings(**ruin, **slow))
    assert found.model.sparsity()["network"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_sparse_products_score_as_dense_ones_do(batch_norm):
    model = random_model("deeplight", hidden=(40, 30), batch_norm=batch_norm, network_sparsity=0.9, warm_up=0).float()
    if batch_norm:
        for norm in model.mlp.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    assert make_scorer(model).model is model
    for name, gone in model.end_step(20 * 100).items():
        model.get_parameter(name).data.masked_fill_(gone, 0)
    light = make_scorer(model, threads=1)
    assert isinstance(light.model, LightScoring)
    ids = random_rows(300)[0]
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(ids)).numpy()
    for rows in (300, 1, 129):
        np.testing.assert_allclose(light.score(ids[:rows]), expected[:rows], rtol=1e-4, atol=1e-4)


def test_a_sparse_run_predicts_as_its_model_does(run, dataset):
    ids = np.array(dataset.validation.ids)
    assert isinstance(run._scorer.model, LightScoring)
    with torch.no_grad():
        expected = torch.sigmoid(run.model.eval()(torch.from_numpy(ids))).numpy()
    np.testing.assert_allclose(run.probabilities(ids), expected, atol=1e-5)


def test_operations_are_those_that_torch_counts_less_what_is_pruned():
    """Torch counts dense matrix products; FwFM's are two per pair and coordinate more, for both halves of R."""
    model = build({"model": "deeplight", **PAPER, "hidden": [200] * 3})
    layers = 2 * (624 * 200 + 2 * 200**2 + 200)
    assert counted_flops(model) == layers + 2 * 39**2 * 16
    assert model.flops() == layers + 741 * 34 + 78
    model = build({"model": "deeplight", **PAPER, "hidden": [200] * 3, "network_sparsity": 0.8, "warm_up": 0})
    for name, gone in model.end_step(20 * 1000).items():
        model.get_parameter(name).data.masked_fill_(gone, 0)
    assert model.flops() == 2 * (0.2 * (layers / 2 - 200) + 200) + 74 * 34 + 78
    paper = FORMULAS["deeplight"] - 2 * 0.2 * 200**2  # it has a layer more
    assert model.flops() == pytest.approx(paper - (39**2 * 0.1 - 74) * 32, rel=0.01)  # and both halves of R
