"""The plan of networks: tables of embeddings, and the layers as an ONNX graph or as sparse matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.compression.weights import Floats, Weights
from fm2.engine.dense import GRAPH
from fm2.engine.graph_check import check_graph
from fm2.engine.plans import NETWORK, Dtype, Plan, RowBlock, Rows, common_sections
from fm2.errors import Fm2Error
from fm2.models.choices import Activation
from fm2.models.sparse import SparseNetwork

if TYPE_CHECKING:  # its module needs torch
    from fm2.models import FlatEmbedding

MAX_GRAPH_BYTES = 2_000_000_000  # of a protocol buffer


def network_plan(run: str | Path, weights: Weights, dtype: Dtype) -> tuple[Weights, Plan]:
    """Return the plan of a network, and its weights with the number of its parameters and operations.

    This reads the model with torch, because the graph is a record of what the torch module computes.
    """
    from fm2.models import GatheredModel
    from fm2.models.onnx.dense import DensePart, dense_graph
    from fm2.training.run import Run

    model = Run.open(run).model
    if not isinstance(model, GatheredModel):
        raise Fm2Error(f"compile: {model.name} cannot be compiled: it is not computed from gathered embeddings")
    part = DensePart(model)
    part.check()
    sparse = model.sparse_network()
    sections = _sparse_sections(sparse) if sparse else _graph_sections(dense_graph(part), weights.name)
    tables = [model.tables[name] for name in part.names]
    blocks = [
        _block(table, field, model.tables.get("linear") if table is tables[0] else None)
        for table in tables
        for field in range(len(weights.sizes))
    ]
    weights = replace(weights, bias=part.bias, costs={"parameters": model.n_parameters, "flops": model.flops()})
    layout = {
        **common_sections(weights, NETWORK, dtype),
        "columns": np.array(list(range(len(weights.sizes))) * len(tables), np.int32),
        "dims": np.array([block.second for block in blocks], np.int32),
    }
    title = "network, sparse products" if sparse else "network, ONNX Runtime"
    return weights, Plan(title, dtype, {**layout, **sections}, blocks)


def _block(table: FlatEmbedding, field: int, linear: FlatEmbedding | None) -> RowBlock:
    """Return the feature rows of a field in a table."""
    size, dim = table.field_sizes[field], table.dims[field]
    embeddings = _rows_of(table, field)
    weights = np.zeros(size, np.float32) if linear is None else _rows_of(linear, field)[:, 0]

    def compute(ids: slice) -> Rows:
        return None, embeddings[ids], weights[ids]

    return RowBlock(size, 0, dim, compute)


def _rows_of(table: FlatEmbedding, field: int) -> Floats:
    size, dim, offset = table.field_sizes[field], table.dims[field], table.offsets[field]
    flat: Floats = table.weight.detach().numpy().reshape(-1)
    return flat[offset : offset + size * dim].reshape(size, dim)


def _graph_sections(graph: bytes, name: str) -> Mapping[str, NDArray[Any]]:
    if len(graph) > MAX_GRAPH_BYTES:
        raise Fm2Error(f"compile: the layers of {name} take {len(graph):,} bytes, more than the 2 GB of an ONNX graph")
    check_graph(graph)
    return {GRAPH: np.frombuffer(graph, np.uint8)}


def _sparse_sections(network: SparseNetwork) -> Mapping[str, NDArray[Any]]:
    """Return the matrices one after the other: that of the pairs, then those of the layers."""
    matrices = [network.pairs, *network.layers]
    return {
        "network.activation": np.array([get_args(Activation).index(network.activation)], np.int64),
        "network.shapes": np.array([matrix.shape for matrix in matrices], np.uint32),
        "network.begins": np.concatenate([matrix.begins for matrix in matrices]),
        "network.columns": np.concatenate([matrix.columns for matrix in matrices]),
        "network.values": np.concatenate([matrix.values for matrix in matrices]),
        "network.biases": network.biases,
        "network.last": network.last,
    }
