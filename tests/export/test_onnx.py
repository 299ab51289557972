"""Exported models predict in onnxruntime what the torch modules predict."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from tests.helpers.planted import QUICK, planted

import fm2
from fm2.cli.main import main
from fm2.export.onnx import Graph
from fm2.models import FlatEmbedding, GatheredModel, build
from fm2.training.train import train

onnxruntime = pytest.importorskip("onnxruntime")

MODELS = {
    "lr": {},
    "poly2": {"hash_bits": 12},
    "fm": {"dim": 5, "linear": "both"},
    "ffm": {"dim": 3},
    "fwfm": {"dim": 5},
    "fvfm": {"dim": 8, "linear": "both"},
    "fmfm": {"dim": [3, 1, 17, 8], "linear": "fields"},
}


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: train(name, dataset, folder / name, **{**QUICK, **own}) for name, own in MODELS.items()}


def opened(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("name", MODELS)
def test_the_graph_agrees_with_the_module(runs, dataset, tmp_path, name, kind):
    session = opened(fm2.export_onnx(runs[name].path, tmp_path / "model.onnx", ids=kind))
    ids = np.asarray(dataset.test.ids).astype(kind)
    with torch.no_grad():
        expected = torch.sigmoid(runs[name].model(torch.from_numpy(ids))).numpy()
    for rows in (0, 1, 7, len(ids)):  # any number of rows
        (probabilities,) = session.run(["probabilities"], {"ids": ids[:rows]})
        assert probabilities.dtype == np.float32
        np.testing.assert_allclose(probabilities, expected[:rows], atol=1e-5)
    assert expected.std() > 0.001  # the model has learned something


@pytest.mark.parametrize("name", MODELS)
def test_random_weights_of_other_shapes_agree(name, tmp_path):
    """Other field sizes and dimensions than those of the trained runs, and large embeddings."""
    config = {"model": name, "field_sizes": [70_000, 1, 5]}
    config |= {"lr": {}, "poly2": {"hash_bits": 20}, "ffm": {"dim": 1}, "fmfm": {"dims": [6, 4, 2]}}.get(
        name, {"dims": 1}
    )
    model = build(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(parameter.numel()))
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "model.onnx"
    onnx.save(Graph(onnx, "int64").build(model), path)
    ids = np.random.default_rng(0).integers(0, config["field_sizes"], (500, 3))
    (probabilities,) = opened(path).run(None, {"ids": ids})
    np.testing.assert_allclose(probabilities, torch.sigmoid(model(torch.from_numpy(ids))).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("wrong", [-1, 13, 2**40, -(2**63), 2**63 - 1])
def test_ids_out_of_range_are_an_error(runs, dataset, tmp_path, name, wrong):
    session = opened(fm2.export_onnx(runs[name], tmp_path / "model.onnx"))
    ids = np.asarray(dataset.test.ids[:3]).astype(np.int64)
    ids[1, 0] = wrong
    with pytest.raises(Exception, match=r"out of data bounds|out of range"):
        session.run(None, {"ids": ids})


def test_the_encoder_and_the_metadata_serve_raw_rows(runs, tmp_path):
    run, rows = runs["fmfm"], planted(200, seed=5)
    session = opened(fm2.export_onnx(run, tmp_path / "model.onnx"))
    (probabilities,) = session.run(None, {"ids": run.encoder.encode(rows).astype(np.int64)})
    np.testing.assert_allclose(probabilities, run.predict(rows), atol=1e-5)
    described = session.get_modelmeta().custom_metadata_map
    assert json.loads(described["fields"]) == ["c0", "c1", "c2", "c3"]
    assert json.loads(described["sizes"]) == run.model.field_sizes


def test_the_command_exports(runs, dataset, tmp_path, capsys):
    out = tmp_path / "model.onnx"
    assert main(["export", str(runs["fm"].path), "--out", str(out), "--ids", "int32"]) == 0
    assert "model.onnx" in capsys.readouterr().out
    (probabilities,) = opened(out).run(None, {"ids": np.asarray(dataset.test.ids)})
    np.testing.assert_allclose(probabilities, runs["fm"].probabilities(dataset.test.ids), atol=1e-5)


def test_wrong_arguments_are_an_error(runs, tmp_path, monkeypatch, capsys):
    with pytest.raises(fm2.Fm2Error, match="has no trained model"):
        fm2.export_onnx(tmp_path, tmp_path / "model.onnx")
    with pytest.raises(fm2.Fm2Error, match="export: ids must be one of int64, int32, got 'int8'"):
        fm2.export_onnx(runs["lr"], tmp_path / "model.onnx", ids="int8")
    with pytest.raises(fm2.Fm2Error, match=r"export: cannot write to .*model.onnx: No such file"):
        fm2.export_onnx(runs["lr"], tmp_path / "no" / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        fm2.Fm2Error, match=r"export requires the package 'onnx'; install it in a clone of fm2 .* '\.\[onnx\]'"
    ):
        fm2.export_onnx(runs["lr"], tmp_path / "model.onnx")


class Scaled(GatheredModel):
    """A model that fm2 does not know: any function of the sum of a row's weights."""

    def __init__(self, function) -> None:
        super().__init__({"model": "scaled", "field_sizes": [5, 7]})
        self.linear = FlatEmbedding([5, 7], 1, scale=0.5)
        self.function = function

    def score(self, embedding=None, linear=None):
        return self.function(linear.sum(1)) + self.bias

    def flops(self) -> int:
        return 2


@pytest.mark.parametrize(
    "function",
    [lambda logits: torch.tanh(logits) * 3, lambda logits: logits * torch.tensor([3.0])],
    ids=["numbers", "tensors"],
)
def test_any_model_with_a_score_method_is_exported(function):
    onnx = pytest.importorskip("onnx")
    model = Scaled(function)
    session = onnxruntime.InferenceSession(Graph(onnx, "int64").build(model).SerializeToString())
    ids = np.random.default_rng(0).integers(0, [5, 7], (20, 2))
    (probabilities,) = session.run(None, {"ids": ids})
    expected = torch.sigmoid(model(torch.from_numpy(ids))).detach().numpy()
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert expected.std() > 0.05


def test_an_operation_without_a_rule_is_named():
    with pytest.raises(fm2.Fm2Error, match=r"scaled uses torch's aten.sinh.default, which has no ONNX rule; add"):
        Graph(pytest.importorskip("onnx"), "int64").build(Scaled(torch.sinh))
