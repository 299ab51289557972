"""The block form of an FmFM, 1/2 vᵀ S v, as an ONNX graph for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from fm2.compression.spectrum import block_matrix
from fm2.compression.weights import Weights


def open_session(weights: Weights, path: Path) -> Any:
    """Write the graph, and open it with one thread."""
    table = np.concatenate(list(weights.embeddings))
    starts = np.cumsum([0, *weights.sizes[:-1]]).astype(np.int64)
    constants = {
        "starts": starts,
        "table": table,
        "linear": np.concatenate(list(weights.linear)),
        "form": (block_matrix(weights) / 2).astype(np.float32),
        "bias": np.array([weights.bias], np.float32),
        "shape": np.array([-1, sum(weights.dims)], np.int64),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Add", ["ids", "starts"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["gathered"]),
        helper.make_node("Reshape", ["gathered", "shape"], ["v"]),
        helper.make_node("MatMul", ["v", "form"], ["u"]),
        helper.make_node("Mul", ["v", "u"], ["terms"]),
        helper.make_node("ReduceSum", ["terms", "axis"], ["pairs"], keepdims=0),
        helper.make_node("Gather", ["linear", "places"], ["weights"]),
        helper.make_node("ReduceSum", ["weights", "axis"], ["sum"], keepdims=0),
        helper.make_node("Add", ["pairs", "sum"], ["both"]),
        helper.make_node("Add", ["both", "bias"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["probability"]),
    ]
    graph = helper.make_graph(
        nodes,
        "fmfm",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", len(weights.sizes)])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["rows"])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
