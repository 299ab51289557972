"""The nodes, constants and inputs of an ONNX graph that is built node by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from fm2 import __version__

OPSET, IR_VERSION = 18, 10  # supported by runtimes since 2024


class Nodes:
    """A graph; methods that add a node return the name of its output. ``onnx`` is the package."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node."""
        out = out or f"{kind}.{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(self, name: str, values: Any) -> str:
        """Add a constant."""
        self.constants[name] = self.onnx.numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def integers(self, *values: int) -> str:
        """Add a constant vector of int64."""
        return self.constant("int64 " + " ".join(map(str, values)), np.array(values, np.int64))

    def sum(self, tensor: str, *axes: int) -> str:
        """Add the sum of a tensor over axes, by default the second one."""
        return self.node("ReduceSum", tensor, self.integers(*(axes or (1,))), keepdims=0)

    def add_input(self, name: str, kind: int, columns: int | str) -> str:
        """Add an input of the shape [rows, columns]."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows", columns]))
        return name

    def model(self, name: str, output: str) -> Any:
        """Return the ONNX model whose output, a float32 per row, has this name."""
        helper = self.onnx.helper
        result = helper.make_tensor_value_info(output, self.onnx.TensorProto.FLOAT, ["rows"])
        return helper.make_model(
            helper.make_graph(self.nodes, name, self.inputs, [result], list(self.constants.values())),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="fm2",
            producer_version=__version__,
        )
