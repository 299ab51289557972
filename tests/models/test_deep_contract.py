"""The contract of all networks: every declared network is tested here."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.networks import (
    ONE_THREAD,
    OWN_DIMS,
    SMALL,
    assert_exported,
    backend_for,
    learn,
    options,
    random_rows,
    small,
    torch_backend_for,
)
from tests.helpers.planted import QUICK, planted
from tests.helpers.runs import compare_runs

import fm2
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.engine.inspect import inspect
from fm2.errors import Fm2Error
from fm2.models import DeepModel, build, get_spec
from fm2.models.registry import model_names, specs
from fm2.training.run import Run
from fm2.training.train import train

every_network = pytest.mark.parametrize("name", model_names(deep=True))
STATEFUL = {**SMALL, "network_dropout": 0.3, "batch_norm": True}  # all that a resumed run has to restore


@every_network
def test_config_rebuilds_the_model(name):
    model = small(name).eval()
    rebuilt = build(json.loads(json.dumps(model.config)), seed=None)
    assert rebuilt.config == model.config
    rebuilt.load_state_dict(model.state_dict())
    ids = torch.from_numpy(random_rows(20)[0])
    torch.testing.assert_close(rebuilt.eval()(ids), model(ids), rtol=0, atol=0)
    assert model.name == name
    assert type(model).__name__ == get_spec(name).class_name
    assert type(model).__doc__


@every_network
def test_initial_weights_depend_only_on_the_seed(name):
    def weights(seed):
        return torch.cat([parameter.detach().reshape(-1) for parameter in small(name, seed).parameters()])

    global_state = torch.random.get_rng_state()
    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))
    assert torch.equal(torch.random.get_rng_state(), global_state)


@every_network
def test_every_parameter_has_a_finite_gradient(name):
    model = small(name)
    ids, labels = (torch.from_numpy(values) for values in random_rows(200))
    model.begin_step(0, 1)
    torch.nn.functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@every_network
def test_it_memorizes_200_rows(name):
    losses = learn(backend_for(name, learning_rate=0.02, dense_learning_rate=0.01), *random_rows(200), 400)
    assert losses[0] > 0.5
    assert min(losses[-100:]) < 0.05  # at these rates, the loss of a step depends on the processor's rounding


@every_network
def test_native_and_torch_backends_take_the_same_steps(name):
    changes = {**options(name, **STATEFUL), "l2": 0.01, "ema_decay": 0.9, "weight_decay": 0.1, "learning_rate": 0.02}
    native_backend, torch_backend = backend_for(name, **changes), torch_backend_for(name, **changes)
    ids, labels = random_rows(100)
    np.testing.assert_allclose(learn(native_backend, ids, labels, 10), learn(torch_backend, ids, labels, 10), rtol=1e-3)
    np.testing.assert_allclose(
        native_backend.score(EncodedRows(ids)), torch_backend.score(EncodedRows(ids)), rtol=1e-2, atol=1e-3
    )


@every_network
def test_fields_with_one_feature_and_batches_of_one_row(name):
    sizes = [1, 5, 1, 1]
    ids, labels = random_rows(30, sizes)
    backend = backend_for(name, sizes, dense_learning_rate=0.01, **options(name, batch_norm=True))
    learn(backend, ids, labels, 5)
    losses = learn(backend, ids[:1], labels[:1], 10)
    assert losses[-1] < losses[0]
    with torch.no_grad():
        expected = backend.model.eval()(torch.from_numpy(ids))
    np.testing.assert_allclose(backend.score(EncodedRows(ids)), expected, rtol=1e-4, atol=1e-5)


@every_network
def test_dimensions_per_field_work_or_raise_an_error(name):
    if get_spec(name).dimensions == "equal":
        with pytest.raises(
            Fm2Error, match=f"{name}: the fields have dimensions 3, 1, 4, 2; they must be equal, because .+"
        ):
            small(name, dims=OWN_DIMS)
        return
    model = small(name, dims=OWN_DIMS)
    assert model.embedding.width == sum(OWN_DIMS)
    assert model(torch.from_numpy(random_rows(5)[0])).shape == (5,)


@every_network
def test_wrong_options_raise_an_error(name):
    with pytest.raises(
        Fm2Error, match=f"{name}: unknown option 'nonsense'; choose from {get_spec(name).option_names[0]}"
    ):
        small(name, nonsense=1)
    first = get_spec(name).options[0]
    with pytest.raises(Fm2Error, match=f"{name}: {first.name} must be .+, got 'much'"):
        small(name, **{first.name: "much"})
    with pytest.raises(Fm2Error, match=f"train: {first.name} must be .+, got 'much'"):
        Settings.of(name, **{first.name: "much"})


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    """Return a function that trains a network on its first call and returns its run."""
    folder, trained = tmp_path_factory.mktemp("networks"), {}

    def run_of(name: str) -> Run:
        if name not in trained:
            trained[name] = train(name, dataset, folder / name, **settings_of(name))
        return trained[name]

    return run_of


def settings_of(name):
    rates = {"learning_rate": 0.01, "dense_learning_rate": 0.005, "field_dropout": 0.2}
    return {**QUICK, **ONE_THREAD, **rates, "seed": 4, "dim": 4, **options(name, **STATEFUL)}


def history_of(run):
    return [json.loads(line) for line in (run.path / "history.jsonl").read_text().splitlines()]


@every_network
def test_an_interrupted_run_resumes_bit_for_bit(runs, dataset, tmp_path, name):
    def interrupt(report):
        if report.begun == 0 and report.rows > 3500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(name, dataset, tmp_path / "resumed", callback=interrupt, **settings_of(name))
    train(name, dataset, tmp_path / "resumed", resume=True)
    compare_runs(runs(name).path, tmp_path / "resumed")


@every_network
def test_a_loaded_run_scores_like_the_trained_one(runs, dataset, name):
    run = Run.open(runs(name).path)
    probabilities = run.probabilities(dataset.validation.ids)
    np.testing.assert_array_equal(probabilities, runs(name).probabilities(dataset.validation.ids))
    with torch.no_grad():
        expected = torch.sigmoid(run.model(torch.from_numpy(np.array(dataset.validation.ids)))).numpy()
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    best = [evaluation for evaluation in history_of(run) if evaluation["best"]][-1]
    assert run.evaluate(dataset, "validation")["log_loss"] == pytest.approx(best["log_loss"])
    assert run.metrics["auc"] > 0.5  # better than chance


@every_network
def test_unknown_values_score_like_the_unknown_feature(runs, name):
    rows = planted(5).with_columns(*(pl.lit("never seen").alias(f"c{i}") for i in range(4)))
    with torch.no_grad():
        logits = runs(name).model.eval()(torch.zeros(5, 4, dtype=torch.int64))
    np.testing.assert_allclose(runs(name).predict(rows), torch.sigmoid(logits), rtol=1e-5)


@every_network
def test_a_warm_start_continues_from_the_trained_weights(runs, dataset, tmp_path, name):
    start = runs(name)
    warm = train(name, dataset, tmp_path / "warm", start=start, **{**QUICK, **ONE_THREAD, "epochs": 1})
    assert warm.model.config["dims"] == start.model.config["dims"]
    first, *_, last = history_of(warm)
    assert (first["step"], first["log_loss"]) == (0, pytest.approx(start.metrics["log_loss"], rel=1e-6))
    assert last["log_loss"] != first["log_loss"]


@every_network
def test_a_network_can_be_inspected_and_compiled(runs, dataset, tmp_path, name):
    run, ids = runs(name), np.array(dataset.train.ids)
    fm2.compile(run.path, tmp_path / "model.fm2")
    for path in (run.path, tmp_path / "model.fm2"):
        description = inspect(path)
        assert description["parameters"] == run.model.n_parameters
        assert description["flops"] == {"network": run.model.flops()}
    scorer = fm2.load(tmp_path / "model.fm2", threads=1)
    for rows in (0, 1, 300):
        np.testing.assert_allclose(scorer.logits(ids[:rows]), run.logits(ids[:rows]), atol=1e-5)
        np.testing.assert_allclose(scorer.predict(ids[:rows]), run.probabilities(ids[:rows]), atol=1e-5)


@every_network
@pytest.mark.parametrize("changes", [{"activation": "gelu"}, STATEFUL], ids=["gelu", "batch norm"])
def test_the_onnx_graph_computes_the_same(name, changes):
    """The dimension differs from the number of fields, so that the graph cannot confuse them."""
    assert_exported(small(name, dims=3, **options(name, **changes)))


def test_every_network_is_a_model():
    assert all(issubclass(get_spec(name).load(), DeepModel) for name in model_names(deep=True))
    shared = {}
    for spec in specs():
        for option in spec.options:  # an option means the same in all models; its default can differ
            known = shared.setdefault(option.name, option)
            assert (option.kind, option.choices, option.help) == (known.kind, known.choices, known.help)
