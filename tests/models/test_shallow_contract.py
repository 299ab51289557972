"""The contract of all shallow models: the paper's equation, its gradient, and the interface to the trainer."""

from __future__ import annotations

import json

import pytest
import torch
from tests.helpers import literal_models
from tests.helpers.lists import random_rows, rows_of_values

from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.models import GatheredModel, build
from fm2.models.registry import model_names
from fm2.models.rows import to_tensors

SIZES = [4, 3, 5, 2]
EQUAL, OWN = [3, 3, 3, 3], [2, 4, 1, 3]
FAMILY = {"fm": [EQUAL], "fwfm": [EQUAL], "fvfm": [EQUAL], "fmfm": [EQUAL, OWN]}
CONFIGS = [
    {"model": "lr", "field_sizes": SIZES},
    {"model": "poly2", "field_sizes": SIZES, "hash_bits": 4},
    {"model": "ffm", "field_sizes": SIZES, "dim": 3},
    *(
        {"model": name, "field_sizes": SIZES, "dims": dims, "linear": linear}
        for name, possible in FAMILY.items()
        for dims in possible
        for linear in ("features", "fields", "both")
    ),
    {"model": "fm", "field_sizes": SIZES, "dims": EQUAL, "linear": "both", "signs": [1, -1, -1]},
]


def name_of(config):
    return "-".join(str(config.get(key, "")) for key in ("model", "linear", "dims", "signs"))


every_model = pytest.mark.parametrize("config", CONFIGS, ids=name_of)


@pytest.fixture
def ids():
    generator = torch.Generator().manual_seed(5)
    return torch.stack([torch.randint(0, size, (7,), generator=generator, dtype=torch.int32) for size in SIZES], 1)


def random_model(config):
    """Return a model in float64 with all parameters of order 1."""
    model = build(config).double()
    generator = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    return model


def literal_copy(model):
    return {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}


@every_model
def test_logits_and_gradients_follow_the_equation(config, ids):
    model = random_model(config)
    parameters = literal_copy(model)
    g = torch.linspace(-1, 2, len(ids), dtype=torch.float64)

    expected = literal_models.logits(model, parameters, ids)
    logits = model(ids)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)

    expected.backward(g)
    logits.backward(g)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, parameters[name].grad, rtol=1e-12, atol=1e-12, msg=name)


LISTS = {
    "weighted": random_rows(SIZES, [1, 3], 7, seed=1),
    "unweighted": random_rows(SIZES, [0, 1, 2, 3], 7, weighted=False, seed=2),
    "long": random_rows(SIZES, [2], 7, longest=20, seed=3),
}


@pytest.mark.parametrize("kind", LISTS)
@every_model
def test_multi_valued_fields_follow_the_equation(config, kind):
    assert_rows_follow(random_model(config), LISTS[kind])


SHARED = [
    {**config, "field_sizes": [5, 3, 5, 5], "owners": owners}
    for config in CONFIGS
    for owners in ([0, 1, 0, 0], [2, 1, 2, 3])
    if config.get("dims") == EQUAL
]


@pytest.mark.parametrize("config", SHARED, ids=lambda config: f"{name_of(config)}-{config['owners']}")
def test_shared_embeddings_follow_the_equation(config):
    model = random_model(config)
    assert model.n_parameters == model.spec.count_parameters(model.config)
    assert model.n_parameters < build({key: value for key, value in config.items() if key != "owners"}).n_parameters
    assert build(json.loads(json.dumps(model.config))).config == model.config
    assert_rows_follow(model, EncodedRows(random_rows(config["field_sizes"], [], 7).ids))
    assert_rows_follow(model, random_rows(config["field_sizes"], [2], 7, seed=1))
    assert_rows_follow(model, random_rows(config["field_sizes"], [0, 2, 3], 7, seed=2))


def assert_rows_follow(model, rows):
    parameters = literal_copy(model)
    g = torch.linspace(-1, 2, len(rows), dtype=torch.float64)
    expected = literal_models.logits(model, parameters, rows_of_values(rows))
    for sparse in (False, True):
        model.zero_grad()
        for table in model.tables.values():
            table.sparse = sparse
        logits = model(to_tensors(rows))
        torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-11)
        logits.backward(g)
        if not sparse:
            expected.backward(g)
        for name, parameter in model.named_parameters():
            found = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
            torch.testing.assert_close(found, parameters[name].grad, rtol=1e-11, atol=1e-11, msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"owners": [0, 1]}, r"owners are \[0, 1\]; expected, for each of 3 fields"),
        ({"owners": [0, 1, 3]}, "expected, for each of 3 fields"),
        ({"owners": [0, 1, -1]}, "expected, for each of 3 fields"),
        ({"owners": [0, 1, 0.0]}, "expected, for each of 3 fields"),
        ({"owners": [1, 2, 0]}, "expected, for each of 3 fields"),
        ({"owners": {"a": 1}}, "expected, for each of 3 fields"),
        ({"owners": [0, 1, 1]}, "field 2 shares the embeddings of field 1, but has 5 features, not 3"),
        (
            {"owners": [0, 1, 0], "dims": [2, 2, 3]},
            "field 2 .* of field 0, but has 3 dimensions, not 2",
        ),
    ],
)
@pytest.mark.parametrize("name", ["fmfm", "widedeep"])
def test_invalid_owners_raise_an_error(name, changes, message):
    with pytest.raises(Fm2Error, match=f"{name}: .*{message}"):
        build({"model": name, "field_sizes": [5, 3, 5], "dims": 2, **changes})


@every_model
def test_sparse_gradients_are_the_dense_ones(config, ids):
    dense, sparse = random_model(config), random_model(config)
    for table in sparse.tables.values():
        table.sparse = True
    for model in (dense, sparse):
        model(ids).square().sum().backward()
    for name, table in sparse.tables.items():
        assert table.weight.grad.is_sparse
        assert table.weight.grad.coalesce()._nnz() == table.weight.grad._nnz()
        torch.testing.assert_close(table.weight.grad.to_dense(), dense.tables[name].weight.grad)


@every_model
def test_every_parameter_is_in_a_table_or_dense(config):
    model = build(config)
    tables = [table.weight for table in model.tables.values()]
    together = {id(p) for p in [*tables, *model.dense_parameters()]}
    assert together == {id(p) for p in model.parameters()}
    assert len(together) == len(tables) + len(model.dense_parameters())
    assert sum(p.numel() for p in model.parameters()) == model.n_parameters + 1


@every_model
def test_the_trainer_can_gather_the_rows(config, ids):
    model = random_model(config)
    if not isinstance(model, GatheredModel):
        assert config["model"] in ("ffm", "poly2")
        return
    rows = {name: table(ids).detach().requires_grad_() for name, table in model.tables.items()}
    logits = model.score(**rows)
    torch.testing.assert_close(logits, model(ids))
    strided = {name: gathered.detach().T.contiguous().T for name, gathered in rows.items()}
    torch.testing.assert_close(model.score(**strided), logits)
    logits.sum().backward()
    assert all(gathered.grad.shape == (len(ids), model.tables[name].width) for name, gathered in rows.items())
    assert all(parameter.grad is not None for parameter in model.dense_parameters())


@every_model
def test_config_rebuilds_the_model(config, ids):
    model = random_model(config).float()
    rebuilt = build(json.loads(json.dumps(model.config)), seed=None)
    assert all(not parameter.any() for parameter in rebuilt.parameters())
    rebuilt.load_state_dict(model.state_dict())
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    torch.testing.assert_close(rebuilt(ids), model(ids), rtol=0, atol=0)


@every_model
def test_initial_weights_depend_on_the_seed(config):
    def weights(seed):
        return torch.cat([parameter.detach().reshape(-1) for parameter in build(config, seed).parameters()])

    assert torch.equal(weights(3), weights(3))
    assert torch.equal(weights(3), weights(torch.Generator().manual_seed(3)))
    if config["model"] not in ("lr", "poly2"):
        assert not torch.equal(weights(3), weights(4))


@every_model
def test_ids_out_of_range_raise_an_error(config, ids):
    model = build(config)
    assert model(ids[:0]).shape == (0,)
    ids[3, 2] = 5
    with pytest.raises(Fm2Error, match="field 2 has id 5; ids must be between 0 and 4"):
        model(ids)
    with pytest.raises(Fm2Error, match=r"ids have shape \[7, 3\]; expected \[rows, 4\]"):
        model(ids[:, :3])


def test_every_shallow_model_is_registered_and_tested():
    shallow = model_names(deep=False)
    assert shallow == ["lr", "poly2", "fm", "ffm", "fwfm", "fvfm", "fmfm"]
    assert {config["model"] for config in CONFIGS} == set(shallow)
    with pytest.raises(Fm2Error, match="unknown model 'fnfm'; did you mean 'ffm'"):
        build({"model": "fnfm", "field_sizes": SIZES})
    with pytest.raises(Fm2Error, match=r"invalid config for lr: .*'dims'"):
        build({"model": "lr", "field_sizes": SIZES, "dims": 4})


@pytest.mark.parametrize("name", ["lr", "poly2", "ffm"])
def test_other_models_have_no_field_matrices(name):
    with pytest.raises(Fm2Error, match=f"{name}: the model has no field matrices; use fm, fwfm, fvfm or fmfm"):
        build({"model": name, "field_sizes": SIZES}).field_matrix(0, 1)
