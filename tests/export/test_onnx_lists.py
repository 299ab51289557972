"""Exported models with list fields predict what the formulas say for the weighted sums of their features' rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tests.helpers.lists import random_rows, values_of
from tests.helpers.networks import SMALL, options

import fm2
from fm2.data.rows import EncodedRows, Lists
from fm2.export.onnx import Graph
from fm2.models import FFM, FlatEmbedding, GatheredModel, Model, Poly2, build
from fm2.models.registry import specs

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SIZES = [12, 9, 12, 7]
NAMES = ["site", "tags", "ad", "history"]
SHALLOW = {"lr": {}, "poly2": {"hash_bits": 10}, "ffm": {"dim": 3}}
MODELS = [spec.name for spec in specs()]


def make(name: str, sizes: list[int] = SIZES, **changes) -> Model:
    """Return a model with random weights of order 1."""
    config = {"model": name, "field_sizes": sizes, **SHALLOW.get(name, {"dims": 4, **options(name, **SMALL)})}
    model = build({**config, **changes}).eval()
    generator = torch.Generator().manual_seed(1)
    for value in model.state_dict().values():
        value += 0.5 * (torch.rand(value.shape, generator=generator) - 0.4)
    return model


def opened(model: Model, list_fields, ids="int64"):
    graph = Graph(onnx, ids, {field: NAMES[field] for field in list_fields}).build(model)
    onnx.checker.check_model(graph)
    return onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])


def pooled(table: FlatEmbedding, rows: EncodedRows) -> np.ndarray:
    """Return the weighted sums of the rows' features, field by field, written out."""
    parts = []
    for field, dim in enumerate(table.dims):
        weights = table.rows(field).double().numpy()
        sums = [sum((w * weights[id] for id, w in values), np.zeros(dim)) for values in values_of(rows, field)]
        parts.append(np.array(sums).reshape(len(rows), dim))
    return np.concatenate(parts, axis=1)


def expected_logits(model: Model, rows: EncodedRows) -> np.ndarray:
    if isinstance(model, GatheredModel):
        with torch.no_grad():
            sums = {name: torch.from_numpy(pooled(table, rows)) for name, table in model.tables.items()}
            return model.double().score(**sums).numpy()
    linear = pooled(model.tables["linear"], rows).sum(1) + model.bias.item()
    return linear + (ffm_pairs(model, rows) if isinstance(model, FFM) else poly2_pairs(model, rows))


def ffm_pairs(model: FFM, rows: EncodedRows) -> np.ndarray:
    """Sum <v_i for j, v_j for i> over all pairs of fields."""
    n = len(model.field_sizes)
    v = pooled(model.embedding, rows).reshape(len(rows), n, n - 1, model.dim)
    pairs = itertools.combinations(range(n), 2)
    return sum(np.sum(v[:, i, j - 1] * v[:, j, i], axis=1) for i, j in pairs)


def poly2_pairs(model: Poly2, rows: EncodedRows) -> np.ndarray:
    """Sum the weights of all pairs of values in different fields, times the weights of both values."""
    table, values = (
        model.pairs.weight.detach().double().numpy(),
        [values_of(rows, field) for field in range(len(SIZES))],
    )
    logits = np.zeros(len(rows))
    for row in range(len(rows)):
        for i, j in itertools.combinations(range(len(SIZES)), 2):
            for (a, weight), (b, other) in itertools.product(values[i][row], values[j][row]):
                slot = key(i, a) * key(j, b) % 2**64 >> (64 - model.hash_bits)
                logits[row] += weight * other * table[slot]
    return logits


def key(field: int, id: int) -> int:
    """The definition in fm2.models.hashing, in Python's integers."""
    z = ((field << 32 | id) + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return (z ^ z >> 31) | 1


@pytest.mark.parametrize(
    ("name", "list_fields"),
    [*((name, (1, 3)) for name in MODELS), *((name, (0, 1, 2, 3)) for name in ("poly2", "ffm", "fvfm", "dcn"))],
)
def test_all_models_agree_with_their_formulas(name, list_fields):
    model, rows = make(name), random_rows(SIZES, list_fields, rows=40)
    session = opened(model, list_fields)
    results = {}
    for part in (rows, rows[:1], rows[:0]):
        (results[len(part)],) = session.run(None, fm2.onnx_inputs(part, NAMES))
    expected = 1 / (1 + np.exp(-expected_logits(model, rows)))
    np.testing.assert_allclose(results[40], expected, atol=1e-5)
    np.testing.assert_allclose(results[1], expected[:1], atol=1e-5)
    assert results[0].shape == (0,)
    assert expected.std() > 0.001


@pytest.mark.parametrize("name", ["lr", "poly2", "ffm", "fmfm", "deepfm"])
def test_lists_without_values_add_nothing(name):
    model = make(name)
    rows = EncodedRows(np.zeros((3, 4), np.int32), {1: Lists.of([[]]), 3: Lists.of([[]])})
    (probabilities,) = opened(model, (1, 3)).run(None, fm2.onnx_inputs(rows, NAMES))
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-expected_logits(model, rows))), atol=1e-6)


@pytest.mark.parametrize("dims", [[3, 1, 17, 8], [4, 8, 8, 4]])
def test_fields_may_have_dimensions_of_their_own(dims):
    model, rows = make("fmfm", dims=dims), random_rows(SIZES, (0, 2), rows=30, weighted=False)
    (probabilities,) = opened(model, (0, 2), "int32").run(None, fm2.onnx_inputs(rows, NAMES, ids="int32"))
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-expected_logits(model, rows))), atol=1e-5)


@pytest.mark.parametrize("name", ["fm", "fmfm", "deepfm"])
def test_embeddings_may_be_shared(name):
    sizes = [7, 9, 7, 7]
    model, rows = make(name, sizes, owners=[3, 1, 3, 3]), random_rows(sizes, (1, 3), rows=30)
    (probabilities,) = opened(model, (1, 3)).run(None, fm2.onnx_inputs(rows, NAMES))
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-expected_logits(model, rows))), atol=1e-5)


@pytest.mark.parametrize("name", ["lr", "poly2", "ffm", "fm", "fmfm"])
def test_ids_out_of_range_are_an_error(name):
    session = opened(make(name), (1, 3))
    inputs = fm2.onnx_inputs(random_rows(SIZES, (1, 3), rows=5), NAMES)
    for wrong in (-1, 9, 2**40, -(2**63), 2**63 - 1):
        inputs["tags.ids"][2, 0] = wrong
        with pytest.raises(Exception, match=r"out of data bounds|out of range"):
            session.run(None, inputs)
