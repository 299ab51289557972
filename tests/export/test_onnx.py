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
def test_the_graph_predicts_what_the_module_does(runs, dataset, tmp_path, name, kind):
    session = opened(fm2.export_onnx(runs[name].path, tmp_path / "model.onnx", ids=kind))
    ids = np.asarray(dataset.test.ids).astype(kind)
    with torch.no_grad():
        expected = torch.sigmoid(runs[name].model(torch.from_numpy(ids))).numpy()
    for rows in (0, 1, 7, len(ids)):  # any number of rows
        (found,) = session.run(["probabilities"], {"ids": ids[:rows]})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[:rows], atol=1e-5)
    assert expected.std() > 0.001  # it has learned something


@pytest.mark.parametrize("name", MODELS)
def test_untrained_weights_of_any_size_agree(name, tmp_path):
    """Field sizes and dimensions that trained runs here do not have, and embeddings that are not small."""
    from fm2.export.onnx import Graph
    from fm2.models import build

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
    (found,) = opened(path).run(None, {"ids": ids})
    np.testing.assert_allclose(found, torch.sigmoid(model(torch.from_numpy(ids))).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("wrong", [-1, 13, 2**40, -(2**63), 2**63 - 1])
def test_ids_that_a_field_does_not_have_are_refused(runs, dataset, tmp_path, name, wrong):
    session = opened(fm2.export_onnx(runs[name], tmp_path / "model.onnx"))
    ids = np.asarray(dataset.test.ids[:3]).astype(np.int64)
    ids[1, 0] = wrong
    with pytest.raises(Exception, match=r"out of data bounds|out of range"):
        session.run(None, {"ids": ids})


def test_raw_rows_go_through_the_encoder_and_the_file_names_its_fields(runs, tmp_path):
    run, rows = runs["fmfm"], planted(200, seed=5)
    session = opened(fm2.export_onnx(run, tmp_path / "model.onnx"))
    (found,) = session.run(None, {"ids": run.encoder.encode(rows).astype(np.int64)})
    np.testing.assert_allclose(found, run.predict(rows), atol=1e-5)
    described = session.get_modelmeta().custom_metadata_map
    assert json.loads(described["fields"]) == ["c0", "c1", "c2", "c3"]
    assert json.loads(described["sizes"]) == run.model.field_sizes


def test_the_command_exports(runs, dataset, tmp_path, capsys):
    out = tmp_path / "model.onnx"
    assert main(["export", str(runs["fm"].path), "--out", str(out), "--ids", "int32"]) == 0
    assert "model.onnx" in capsys.readouterr().out
    (found,) = opened(out).run(None, {"ids": np.asarray(dataset.test.ids)})
    np.testing.assert_allclose(found, runs["fm"].probabilities(dataset.test.ids), atol=1e-5)


def test_what_is_wrong_is_said(runs, tmp_path, monkeypatch, capsys):
    with pytest.raises(fm2.Fm2Error, match="has no trained model"):
        fm2.export_onnx(tmp_path, tmp_path / "model.onnx")
    with pytest.raises(fm2.Fm2Error, match="export: ids are 'int8'; they are one of int64, int32"):
        fm2.export_onnx(runs["lr"], tmp_path / "model.onnx", ids="int8")
    with pytest.raises(fm2.Fm2Error, match="No such file"):
        fm2.export_onnx(runs["lr"], tmp_path / "no" / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(
        fm2.Fm2Error, match=r"export requires the package 'onnx'; install it with: pip install 'fm2\[onnx\]'"
    ):
        fm2.export_onnx(runs["lr"], tmp_path / "model.onnx")
