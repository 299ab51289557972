"""Measurements of compiled networks, for score.py: DeepFM next to ONNX Runtime, and a pruned DeepLight.

ONNX Runtime runs the complete graph that `fm2 export` writes, with ids as input, on one thread. The compiled DeepFM
looks its embeddings up in native code and passes them to ONNX Runtime; a pruned DeepLight has sparse products, and is
compared with the same weights as dense layers. All times are processor times of one thread, calls from Python included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from fm2 import Schema, Scorer
from fm2.compression.weights import Weights
from fm2.data.encoder import Encoder
from fm2.engine.compile import compile
from fm2.export.onnx import export_onnx
from fm2.models import build
from fm2.models.deep import deeplight
from fm2.models.deep.deeplight import DeepLight, smallest
from fm2.training.run import Run
from targets import Target
from timing import median_cpu

Ids = NDArray[np.int32]
Measurements = dict[str, Callable[[], float]]
DIM, HIDDEN, SPARSITY = 16, [400, 400, 400], 0.95
ROWS, CANDIDATES, CANDIDATE_FIELDS, CALLS = 300, 1000, 10, 5


def network_tasks(weights: Weights, ids: Ids, folder: Path) -> Measurements:
    """Return measurements of networks with the fields and vocabularies of these weights."""
    deepfm = make_run(weights, {"model": "deepfm"}, folder / "deepfm")
    light = make_run(weights, {"model": "deeplight"}, folder / "deeplight")
    sparse = compile(light, folder / "sparse.fm2").path
    deeplight.MIN_SPARSITY = 2.0  # of no network
    dense = compile(light, folder / "dense.fm2").path
    return {
        **onnx_tasks(deepfm, ids, folder),
        **compiled_tasks("DeepFM", Scorer(compile(deepfm, folder / "deepfm.fm2").path, threads=1), ids),
        **compiled_tasks("sparse DeepLight", Scorer(sparse, threads=1), ids),
        **compiled_tasks("dense DeepLight", Scorer(dense, threads=1), ids),
    }


def network_targets(best: dict[str, float]) -> list[Target]:
    """Compare compiled networks with ONNX Runtime, and sparse with dense ones, by speed."""
    targets = []
    for rows in ("one row", "1,000 rows", "1,000 candidates"):
        peer = "1,000 rows" if rows == "1,000 candidates" else rows
        ratio = best[f"{peer}, DeepFM, ONNX Runtime"] / best[f"{rows}, DeepFM"]
        targets.append(Target(f"DeepFM / ONNX Runtime, {rows}", ratio, at_least=1.0))
        ratio = best[f"{rows}, dense DeepLight"] / best[f"{rows}, sparse DeepLight"]
        targets.append(Target(f"DeepLight, sparse / dense, {rows}", ratio, at_least=1.0))
    return targets


def make_run(weights: Weights, config: dict[str, Any], folder: Path) -> Path:
    """Save a network with random weights; a DeepLight is pruned."""
    model = build({**config, "field_sizes": weights.sizes, "dims": DIM, "hidden": HIDDEN, "embedding_std": 0.1}, seed=0)
    if isinstance(model, DeepLight):
        with torch.no_grad():
            for weight in model.prunable_weights():
                weight.masked_fill_(smallest(weight, SPARSITY), 0)
    folder.mkdir()
    schema: Schema = weights.schema
    Run(folder, model, Encoder(schema, weights.vocabularies), {}).save(folder)
    return folder


def compiled_tasks(name: str, model: Scorer, ids: Ids) -> Measurements:
    """Return measurements of a compiled model called from Python: one row, many rows, many candidates of a context."""
    ranker = model.ranker(candidate=model.columns[-CANDIDATE_FIELDS:])
    context = np.ascontiguousarray(ids[0, :-CANDIDATE_FIELDS])
    candidates = np.ascontiguousarray(ids[:CANDIDATES, -CANDIDATE_FIELDS:])
    logit, logits = np.empty(1, np.float32), np.empty(CANDIDATES, np.float32)
    rows = [np.ascontiguousarray(ids[row : row + 1]) for row in range(ROWS)]
    batch = np.ascontiguousarray(ids[:CANDIDATES])
    return {
        f"one row, {name}": median_cpu([functools.partial(model.native.score, row, logit, 1) for row in rows]),
        f"1,000 rows, {name}": median_cpu([lambda: model.native.score(batch, logits, 1)] * CALLS),
        f"1,000 candidates, {name}": median_cpu([lambda: ranker.rank(context, candidates, top=10)] * CALLS),
    }


def onnx_tasks(run: Path, ids: Ids, folder: Path) -> Measurements:
    """Return measurements of ONNX Runtime with the complete graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = export_onnx(run, folder / "deepfm.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rows = [np.ascontiguousarray(ids[row : row + 1], dtype=np.int64) for row in range(ROWS)]
    batch = np.ascontiguousarray(ids[:CANDIDATES], dtype=np.int64)

    def score(rows: NDArray[np.int64]) -> None:
        session.run(None, {"ids": rows})

    return {
        "one row, DeepFM, ONNX Runtime": median_cpu([functools.partial(score, row) for row in rows]),
        "1,000 rows, DeepFM, ONNX Runtime": median_cpu([functools.partial(score, batch)] * CALLS),
    }
