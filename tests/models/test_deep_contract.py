"""What every network promises, whoever wrote it; a network that is declared is tested here."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.networks import OWN_DIMS, SIZES, SMALL, assert_exported, options, random_rows, small
from tests.helpers.planted import QUICK, planted
from tests.helpers.runs import compare_runs

import fm2
from fm2.artifacts.settings import Settings
from fm2.engine.inspect import inspect
from fm2.errors import Fm2Error
from fm2.models import DeepModel, build, get_spec
from fm2.models.registry import model_names, specs
from fm2.training.construction import make_backend, make_model
from fm2.training.run import Run
from fm2.training.scorer import torch_threads
from fm2.training.torch_backend import TorchBackend
from fm2.training.train import train

every_network = pytest.mark.parametrize("name", model_names(deep=True))
ONE_THREAD = {"threads": 1}  # on a busy machine, small products wait long for others
LIVELY = {**SMALL, "network_dropout": 0.3, "batch_norm": True}  # all that a resumed run could forget


@pytest.fixture(autouse=True)
def one_thread():
    with torch_threads(1):
        yield


def backend_for(name, sizes=SIZES, **changes):
    plain = {"l2": 0, "field_dropout": 0, "ema_decay": 0, "dim": 4, "embedding_std": 0.3, **ONE_THREAD}
    settings = Settings.of(name, **{**plain, **options(name, **SMALL), **changes})
    return make_backend(make_model(settings, sizes), settings, np.ones(sum(sizes), np.int64))


def learn(backend, ids, labels, steps):
    order = np.arange(len(ids))
    return [backend.step(ids, order, labels, None, 1.0) for _ in range(steps)]


@every_network
def test_it_is_rebuilt_from_plain_values(name):
    model = small(name).eval()
    again = build(json.loads(json.dumps(model.config)), seed=None)
    assert again.config == model.config
    again.load_state_dict(model.state_dict())
    ids = torch.from_numpy(random_rows(20)[0])
    torch.testing.assert_close(again.eval()(ids), model(ids), rtol=0, atol=0)
    assert model.name == name
    assert type(model).__name__ == get_spec(name).class_name
    assert type(model).__doc__


@every_network
def test_a_seed_decides_the_first_weights_and_nothing_else_does(name):
    def weights(seed):
        return torch.cat([parameter.detach().reshape(-1) for parameter in small(name, seed).parameters()])

    before = torch.random.get_rng_state()
    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))
    assert torch.equal(torch.random.get_rng_state(), before)


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
def test_it_learns_200_rows_by_heart(name):
    losses = learn(backend_for(name, learning_rate=0.02, dense_learning_rate=0.01), *random_rows(200), 300)
    assert losses[0] > 0.5
    assert losses[-1] < 0.05


@every_network
def test_native_steps_are_torchs_steps(name):
    changes = {**options(name, **LIVELY), "l2": 0.01, "ema_decay": 0.9, "weight_decay": 0.1, "learning_rate": 0.02}
    native, plain = backend_for(name, **changes), backend_for(name, **changes)
    spread = {key: np.ones(table.weight.numel(), np.float32) for key, table in plain.model.tables.items()}
    plain = TorchBackend(plain.model, plain.settings, spread)
    ids, labels = random_rows(100)
    np.testing.assert_allclose(learn(native, ids, labels, 10), learn(plain, ids, labels, 10), rtol=1e-3)
    np.testing.assert_allclose(native.score(ids), plain.score(ids), rtol=1e-2, atol=1e-3)


@every_network
def test_fields_may_have_a_single_value_and_batches_a_single_row(name):
    sizes = [1, 5, 1, 1]
    ids, labels = random_rows(30, sizes)
    backend = backend_for(name, sizes, **options(name, **LIVELY))
    assert np.isfinite(learn(backend, ids, labels, 5)).all()
    assert np.isfinite(learn(backend, ids[:1], labels[:1], 2)).all()
    assert np.isfinite(backend.score(ids)).all()


@every_network
def test_dimensions_per_field_work_or_are_refused_clearly(name):
    if get_spec(name).dimensions == "equal":
        with pytest.raises(Fm2Error, match=f"{name}: all fields need the same dimension, got 3, 1, 4, 2: .+"):
            small(name, dims=OWN_DIMS)
        return
    model = small(name, dims=OWN_DIMS)
    assert model.embedding.width == sum(OWN_DIMS)
    assert model(torch.from_numpy(random_rows(5)[0])).shape == (5,)


@every_network
def test_wrong_options_are_named(name):
    with pytest.raises(
        Fm2Error, match=f"{name}: unknown option 'nonsense'; there are {get_spec(name).option_names[0]}"
    ):
        small(name, nonsense=1)
    first = get_spec(name).options[0]
    with pytest.raises(Fm2Error, match=f"{name}: {first.name} must be .+, got 'much'"):
        small(name, **{first.name: "much"})
    with pytest.raises(Fm2Error, match=f"train: {first.name} must be .+, got 'much'"):
        Settings.of(name, **{first.name: "much"})


@every_network
def test_operations_and_parameters_are_counted(name):
    """Its docstring adds its parameters up by hand, in an example that runs."""
    assert small(name).flops() > 0
    assert "model.n_parameters ==" in str(type(small(name)).__doc__)


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    """Give a function that trains a network once, and gives its run."""
    folder, found = tmp_path_factory.mktemp("networks"), {}

    def run_of(name: str) -> Run:
        if name not in found:
            found[name] = train(name, dataset, folder / name, **settings_of(name))
        return found[name]

    return run_of


def settings_of(name):
    rates = {"learning_rate": 0.01, "dense_learning_rate": 0.005, "field_dropout": 0.2}
    return {**QUICK, **ONE_THREAD, **rates, "seed": 4, "dim": 4, **options(name, **LIVELY)}


@every_network
def test_a_run_resumes_bit_for_bit(runs, dataset, tmp_path, name):
    def interrupt(report):
        if report.begun == 0 and report.rows > 3500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(name, dataset, tmp_path / "parts", callback=interrupt, **settings_of(name))
    train(name, dataset, tmp_path / "parts", resume=True)
    compare_runs(runs(name).path, tmp_path / "parts")


@every_network
def test_it_survives_saving_and_loading(runs, dataset, name):
    run = Run.open(runs(name).path)
    found = run.probabilities(dataset.validation.ids)
    np.testing.assert_array_equal(found, runs(name).probabilities(dataset.validation.ids))
    with torch.no_grad():
        expected = torch.sigmoid(run.model(torch.from_numpy(np.array(dataset.validation.ids)))).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    last = json.loads((run.path / "history.jsonl").read_text().splitlines()[-1])
    assert last["best"] is False or run.evaluate(dataset, "validation")["log_loss"] == pytest.approx(last["log_loss"])
    assert run.metrics["auc"] > 0.5  # it has learned something


@every_network
def test_unknown_values_have_a_probability(runs, name):
    rows = planted(5).with_columns(*(pl.lit("never seen").alias(f"c{i}") for i in range(4)))
    found = runs(name).predict(rows)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, found[0], rtol=1e-6)  # a row's place in the batch may decide its last bit
    assert 0 < found[0] < 1


@every_network
def test_a_trained_one_is_trained_on(runs, dataset, tmp_path, name):
    further = train(name, dataset, tmp_path / "further", start=runs(name), **{**QUICK, **ONE_THREAD, "epochs": 1})
    assert further.model.config["dims"] == runs(name).model.config["dims"]


@every_network
def test_it_is_inspected_but_not_compiled(runs, tmp_path, name):
    found = inspect(runs(name).path)
    assert found["parameters"] == runs(name).model.n_parameters
    assert found["flops"] == {"network": runs(name).model.flops()}
    with pytest.raises(Fm2Error, match=f": {name} cannot be compiled; fm2 export writes it as ONNX"):
        fm2.compile(runs(name).path, tmp_path / "model.fm2")


@every_network
@pytest.mark.parametrize("lively", [False, True])
def test_its_onnx_graph_agrees(name, lively):
    """With another number of fields than of dimensions: a graph may not depend on that they are the same."""
    assert_exported(small(name, dims=3, **options(name, **(LIVELY if lively else {"activation": "gelu"}))))


def test_every_network_is_a_model():
    assert all(issubclass(get_spec(name).load(), DeepModel) for name in model_names(deep=True))
    shared = {}
    for spec in specs():
        for option in spec.options:  # the same name means the same everywhere; defaults may differ
            known = shared.setdefault(option.name, option)
            assert (option.kind, option.choices, option.help) == (known.kind, known.choices, known.help)
