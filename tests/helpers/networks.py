"""Small networks, random rows, training backends, and torch's count of operations, for the tests of networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.rows import EncodedRows
from fm2.export.onnx import Graph
from fm2.models import DeepModel, build, get_spec
from fm2.training.backend import Backend
from fm2.training.construction import make_backend, make_model
from fm2.training.run import Run
from fm2.training.torch_backend import TorchBackend
from fm2.training.unknown import UnknownFeatures

SIZES = [12, 9, 12, 7]
OWN_DIMS = [3, 1, 4, 2]
SMALL = {"hidden": (16, 8), "second_hidden": (12, 8), "mask_blocks": (6, 4)}
PAPER = {"field_sizes": [2] * 39, "dims": 16}  # n and K of the paper, whose perceptrons have three layers of 200
ONE_THREAD = {"threads": 1}  # more threads slow down small products on a busy machine


def options(name: str, **values: Any) -> dict[str, Any]:
    """Return those of the options that a network has."""
    return {key: value for key, value in values.items() if key in get_spec(name).option_names}


def small(name: str, seed: int | None = 0, **changes: Any) -> DeepModel:
    """Return a small network with embeddings of order 1."""
    config = {"model": name, "field_sizes": SIZES, "dims": 4, "embedding_std": 0.5, **options(name, **SMALL)}
    model = build({**config, **changes}, seed)
    assert isinstance(model, DeepModel)
    return model


def random_rows(rows: int, sizes=SIZES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random ids and independent random labels."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, sizes, (rows, len(sizes)), dtype=np.int32)
    return ids, random.integers(0, 2, rows).astype(np.float32)


def backend_for(name: str, sizes=SIZES, **changes: Any) -> Backend:
    """Return the native backend of a small network, without regularization unless ``changes`` add some."""
    defaults = {"l2": 0, "field_dropout": 0, "ema_decay": 0, "dim": 4, "embedding_std": 0.3, **ONE_THREAD}
    settings = Settings.of(name, **{**defaults, **options(name, **SMALL), **changes})
    return make_backend(make_model(settings, sizes), settings, np.ones(sum(sizes), np.int64))


def torch_backend_for(name: str, **changes: Any) -> TorchBackend:
    """Return the torch backend of the same network."""
    native = backend_for(name, **changes)
    spread = {key: np.ones(table.weight.numel(), np.float32) for key, table in native.model.tables.items()}
    unknown = {
        key: UnknownFeatures(table, np.ones(sum(table.field_sizes), np.int64))
        for key, table in native.model.tables.items()
        if not table.keep_zeros
    }
    return TorchBackend(native.model, native.settings, spread, unknown=unknown)


def learn(backend: Backend, ids: np.ndarray, labels: np.ndarray, steps: int) -> list[float]:
    """Train on a batch of all rows for some steps and return the losses."""
    order = np.arange(len(ids))
    return [backend.step(EncodedRows(ids), order, labels, None, 1.0) for _ in range(steps)]


def prune(model: DeepModel, step: int) -> None:
    """Set the weights to zero that a network prunes after this step."""
    for name, mask in model.end_step(step).items():
        model.get_parameter(name).data.masked_fill_(mask, 0)


def counted_flops(model: DeepModel, rows: int = 8) -> float:
    """Return torch's count of the operations per row in matrix products and convolutions."""
    ids = torch.zeros(rows, len(model.field_sizes), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(ids)
    return counter.get_total_flops() / rows


def assert_exported(model: DeepModel) -> None:
    """Compare a model, with perturbed weights, to its ONNX graph on no row, one row, and many rows."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    generator = torch.Generator().manual_seed(1)
    for value in model.state_dict().values():  # so that biases are not zero and running statistics not initial
        value += 0.4 * (torch.rand(value.shape, generator=generator) - 0.5)
    graph = Graph(onnx, "int64").build(model)
    onnx.checker.check_model(graph)
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    ids = random_rows(50)[0].astype(np.int64)
    with torch.no_grad():
        expected = torch.sigmoid(model.eval()(torch.from_numpy(ids))).numpy()
    for rows in (0, 1, 50):
        (probabilities,) = session.run(None, {"ids": ids[:rows]})
        np.testing.assert_allclose(probabilities, expected[:rows], atol=1e-5)
    assert expected.std() > 0.001


def random_run(name: str, dataset: Dataset, folder: Path, **changes: Any) -> Run:
    """Save a small network with random weights and statistics, as if it had been trained on a dataset."""
    settings = Settings.of(name, **{"dim": 4, "embedding_std": 0.5, **options(name, **SMALL), **changes})
    sizes, schema = [len(vocabulary) for vocabulary in dataset.vocabularies], dataset.schema
    model = build(get_spec(name).config(settings.to_dict(), sizes, schema.owners))
    generator = torch.Generator().manual_seed(1)
    for key, value in model.state_dict().items():
        if key != "embedding.weight":  # so that biases are not zero and running statistics not initial
            value += 0.4 * (torch.rand(value.shape, generator=generator) - 0.5)
    folder.mkdir()
    Run(folder, model, Encoder(schema, dataset.vocabularies), {"auc": 0.5, "log_loss": 0.7}).save(folder)
    return Run.open(folder, threads=1)


def pruned_run(name: str, dataset: Dataset, folder: Path, **changes: Any) -> Run:
    """Save a network like :func:`random_run`, and prune 95% of its layers."""
    run = random_run(name, dataset, folder, network_sparsity=0.95, warm_up=0, **changes)
    assert isinstance(run.model, DeepModel)
    prune(run.model, 10_000)
    run.save(folder)
    return Run.open(folder, threads=1)
