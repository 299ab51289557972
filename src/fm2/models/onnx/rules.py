"""Translate a network to nodes of an ONNX graph.

torch.export records the operations of the network, and each operation has a rule here. What depends on weights alone,
such as the block matrix of an FmFM, is computed during the translation and becomes a constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from fm2.errors import Fm2Error
from fm2.models.onnx.nodes import Nodes

TRACED_ROWS = 5


class Translation:
    """Adds the nodes of a module to a graph.

    ``inputs`` has the names in the graph and the widths of the module's arguments, each [rows, width]. ``subject`` is
    the operation and the model, for error messages.
    """

    def __init__(self, graph: Nodes, module: nn.Module, inputs: Mapping[str, int], subject: str) -> None:
        self.graph = graph
        self._subject = subject
        self._program = _trace(module, list(inputs.values()))
        self._rows = list(inputs)
        self._values: dict[fx.Node, Any] = {}  # a str is a tensor of the graph; anything else is known already
        self._ranks = dict.fromkeys(self._rows, 2)

    def result(self) -> str:
        """Add all nodes and return the name of the module's result [rows]."""
        constants = {**self._program.state_dict, **self._program.constants}
        signature = self._program.graph_signature
        stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        stored |= signature.inputs_to_lifted_tensor_constants
        rows = iter(self._rows)
        graph = self._program.graph
        for node in graph.nodes:
            if node.op == "placeholder":
                self._values[node] = constants[stored[node.name]].detach() if node.name in stored else next(rows)
            elif node.op == "call_function":
                self._values[node] = self._translate(node)
        return self.tensor(self._values[graph.output_node().args[0][0]])

    def _translate(self, node: fx.Node) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if not any(isinstance(self._values[source], str) for source in node.all_input_nodes):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        name = str(node.target).removeprefix("aten.").split(".")[0]
        if name not in RULES:
            raise Fm2Error(
                f"{self._subject} uses torch's {node.target}, which has no ONNX rule; "
                "add one to fm2.models.onnx.rules.RULES"
            )
        result = RULES[name](self, *args, **{key: value for key, value in kwargs.items() if key != "pin_memory"})
        if isinstance(result, str):
            self._ranks[result] = getattr(node.meta["val"], "ndim", 0)
        return result

    def tensor(self, value: Any) -> str:
        """Return the name of a tensor, adding a constant if it is not in the graph."""
        if isinstance(value, str):
            return value
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.array(value, np.float32)
        return self.graph.constant(f"constant {len(self.graph.constants)}", array)

    def node(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node whose inputs are tensors or numbers."""
        return self.graph.node(kind, *(self.tensor(value) for value in inputs), **attributes)

    def integers(self, *values: int) -> str:
        """Return integers as a tensor."""
        return self.graph.integers(*values)

    def axes(self, tensor: Any, dims: Any) -> list[int]:
        """Count axes from the first one: counted from the last, onnxruntime infers wrong shapes for empty batches."""
        rank = self._ranks[tensor] if isinstance(tensor, str) else tensor.ndim
        if dims is None:
            return list(range(rank))
        return [dim % rank for dim in (dims if isinstance(dims, list | tuple) else [dims])]


def _trace(module: nn.Module, widths: Sequence[int]) -> Any:
    example = tuple(torch.zeros(TRACED_ROWS, width) for width in widths)
    rows = torch.export.Dim("rows", min=2)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # from inside torch
        shapes = (tuple({0: rows} for _ in widths),)
        return torch.export.export(module.eval(), example, dynamic_shapes=shapes).run_decompositions()


def _reduce(kind: str) -> Callable[..., str]:
    def rule(to: Translation, x: Any, dims: Any = None, keepdim: bool = False) -> str:
        return to.node(kind, x, to.integers(*to.axes(x, dims)), keepdims=int(keepdim))

    return rule


def _norm(to: Translation, x: Any, order: float = 2, dims: Any = None, keepdim: bool = False) -> str:
    if order != 2:
        raise Fm2Error(f"export: a norm of order {order} has no ONNX rule")
    return _reduce("ReduceL2")(to, x, dims, keepdim)


def _scaled_sum(kind: str) -> Callable[..., str]:
    def rule(to: Translation, x: Any, y: Any, alpha: float = 1) -> str:
        return to.node(kind, x, y if alpha == 1 else to.node("Mul", y, float(alpha)))

    return rule


def _direct(kind: str) -> Callable[..., str]:
    return lambda to, *inputs: to.node(kind, *inputs)


def _reshape(to: Translation, x: Any, sizes: Sequence[Any]) -> str:
    # -1 leaves the number of rows to the runtime.
    return to.node("Reshape", x, to.integers(*(size if isinstance(size, int) else -1 for size in sizes)))


def _slice(to: Translation, x: Any, dim: int = 0, start: int | None = 0, end: int | None = None, step: int = 1) -> str:
    last = end if isinstance(end, int) else 2**63 - 1
    return to.node("Slice", x, to.integers(start or 0), to.integers(last), to.integers(dim), to.integers(step))


def _batch_norm(to: Translation, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *options: Any) -> tuple[str]:
    return (to.node("BatchNormalization", x, weight, bias, mean, variance, epsilon=float(options[-1])),)


def _layer_norm(to: Translation, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[str]:
    scale = torch.ones(*shape) if weight is None else weight
    inputs = (x, scale) if bias is None else (x, scale, bias)
    return (to.node("LayerNormalization", *inputs, axis=-len(shape), epsilon=float(eps)),)


def _gelu(to: Translation, x: Any, approximate: str = "none") -> str:
    if approximate != "none":
        raise Fm2Error("export: approximate gelu has no ONNX rule")
    erf = to.node("Erf", to.node("Mul", x, 0.5**0.5))
    return to.node("Mul", to.node("Mul", x, 0.5), to.node("Add", erf, 1.0))


def _convolution(to: Translation, x: Any, weight: Any, bias: Any, strides: Any, padding: Any, *options: Any) -> str:
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return to.node("Conv", *inputs, strides=list(strides), pads=[*padding, *padding])


def _max_pool(to: Translation, x: Any, size: Any, strides: Any, padding: Any, dilation: Any, up: bool) -> tuple[str]:
    sides = {"kernel_shape": list(size), "strides": list(strides or size), "pads": [*padding, *padding]}
    return (to.node("MaxPool", x, ceil_mode=int(up), **sides),)


def _split(to: Translation, x: Any, sizes: Sequence[int], dim: int = 0) -> tuple[str, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(_slice(to, x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True))


def _expand(to: Translation, x: Any, sizes: Sequence[Any]) -> str:
    # A 1 keeps the size in ONNX, which is right for torch's -1 and for the number of rows.
    return to.node("Expand", x, to.integers(*(size if isinstance(size, int) and size > 0 else 1 for size in sizes)))


def _times_vector(to: Translation, matrix: Any, vector: Any) -> str:
    # As a product with a column: onnxruntime cannot multiply an empty batch by a vector.
    column = vector[:, None] if isinstance(vector, Tensor) else to.node("Unsqueeze", vector, to.integers(1))
    return to.node("Squeeze", to.node("MatMul", matrix, column), to.integers(1))


# The operations that run_decompositions leaves, by their names in torch.ops.aten.
SAME_NAME = ("Abs", "Div", "Exp", "Log", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh")
RULES: dict[str, Callable[..., Any]] = {kind.lower(): _direct(kind) for kind in SAME_NAME} | {
    "add": _scaled_sum("Add"),
    "sub": _scaled_sum("Sub"),
    "leaky_relu": lambda to, x, slope=0.01: to.node("LeakyRelu", x, alpha=float(slope)),
    "gelu": _gelu,
    "mm": _direct("MatMul"),
    "bmm": _direct("MatMul"),
    "addmm": lambda to, bias, x, weight: to.node("Gemm", x, weight, bias),
    "addmv": lambda to, x, matrix, vector: to.node("Add", x, _times_vector(to, matrix, vector)),
    "mv": _times_vector,
    "sum": _reduce("ReduceSum"),
    "mean": _reduce("ReduceMean"),
    "amax": _reduce("ReduceMax"),
    "linalg_vector_norm": _norm,
    "_softmax": lambda to, x, dim, _: to.node("Softmax", x, axis=dim),
    "cat": lambda to, parts, dim=0: to.node("Concat", *parts, axis=dim),
    "view": _reshape,
    "_unsafe_view": _reshape,
    "reshape": _reshape,
    "unsqueeze": lambda to, x, dim: to.node("Unsqueeze", x, to.integers(dim)),
    "squeeze": lambda to, x, dims: to.node("Squeeze", x, to.integers(*(dims if isinstance(dims, list) else [dims]))),
    "permute": lambda to, x, dims: to.node("Transpose", x, perm=list(dims)),
    "expand": _expand,
    "repeat": lambda to, x, times: to.node("Tile", x, to.integers(*times)),
    "select": lambda to, x, dim, index: to.node("Gather", x, torch.tensor(index), axis=dim),
    "index_select": lambda to, x, dim, indices: to.node("Gather", x, indices, axis=dim),
    "slice": _slice,
    "split_with_sizes": _split,
    "getitem": lambda to, parts, index: parts[index],
    "clone": lambda to, x, memory_format=None: x,
    "alias": lambda to, x: x,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_layer_norm": _layer_norm,
    "convolution": _convolution,
    "max_pool2d_with_indices": _max_pool,
    "sym_size": lambda to, x, dim: "rows",
    # Multiples of the number of rows are left to the runtime, like that number itself.
    "<built-in function mul>": lambda to, *sizes: "rows",
    "<built-in function floordiv>": lambda to, *sizes: "rows",
}
