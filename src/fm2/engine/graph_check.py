"""Check the ONNX graph of a compiled network before a runtime reads it.

The file may come from anyone. ONNX graphs can refer to other files, contain loops, and call operations of other
packages. This accepts only what :mod:`fm2.models.onnx` writes: a list of simple operations, and tensors whose numbers
are in the graph itself. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The operations of fm2.models.onnx.rules.
OPERATIONS = {
    *("Abs", "Add", "Div", "Erf", "Exp", "LeakyRelu", "Log", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid"),
    *("Sqrt", "Sub", "Tanh", "Gemm", "MatMul", "Conv", "MaxPool", "BatchNormalization", "LayerNormalization"),
    *("ReduceL2", "ReduceMax", "ReduceMean", "ReduceSum", "Softmax", "Concat", "Expand", "Gather", "Identity"),
    *("Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers

# The fields that messages may have. None is a value; a mapping is a message.
Fields = Mapping[int, Any]
ATTRIBUTE: Fields = dict.fromkeys((1, 2, 3, 4, 7, 8, 20))  # numbers and texts, but neither tensors nor graphs
NODE: Fields = {1: None, 2: None, 3: None, 4: None, 5: ATTRIBUTE}  # inputs, outputs, name, operation, attributes
OPERATION = 4
TENSOR: Fields = dict.fromkeys((1, 2, 8, 9))  # shape, type, name, bytes; no other file
GRAPH: Fields = {1: NODE, 2: None, 5: TENSOR, 11: None, 12: None}  # nodes, name, constants, inputs, outputs
MODEL: Fields = {1: None, 2: None, 3: None, 7: GRAPH, 8: None}  # versions, producer, graph, operator set


def check_graph(graph: bytes) -> None:
    """Raise ValueError if a graph contains anything that fm2 does not write."""
    _check(memoryview(graph), MODEL, "the graph")


def _check(message: memoryview, allowed: Fields, name: str) -> None:
    for number, value in _fields(message):
        if number not in allowed:
            raise ValueError(f"{name} has the unexpected field {number}")
        if allowed[number] is not None:
            if not isinstance(value, memoryview):
                raise ValueError(f"{name} has a number instead of a message")
            _check(value, allowed[number], f"{name}, field {number}")
        if allowed is NODE and number == OPERATION:
            operation = bytes(value)[:50].decode(errors="replace") if isinstance(value, memoryview) else str(value)
            if operation not in OPERATIONS:
                raise ValueError(f"the operation '{operation}' is not allowed")


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Return the number and the value of each field of a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind, size = key & 7, 0
        if kind == VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if size > len(message) - at:
            raise ValueError("truncated message")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("truncated number")
