"""A network as nodes of an ONNX graph: torch writes down what it calculates; each of its operations has a rule here.

What depends on weights alone, such as the block matrix of an FmFM, is calculated now and becomes a constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from fm2.errors import Fm2Error
from fm2.models import DeepModel

if TYPE_CHECKING:
    from fm2.export.onnx import Graph

TRACED_ROWS = 5
END = 2**63 - 1


class _Score(nn.Module):
    """A network from gathered rows to logits, as torch.export wants it."""

    def __init__(self, model: DeepModel, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self._names = model, names

    def forward(self, *rows: Tensor) -> Tensor:
        return self.model.score(**dict(zip(self._names, rows, strict=True)))


class Translation:
    """Adds the nodes of a network to a graph in which the ``rows`` of its tables are gathered already."""

    def __init__(self, graph: Graph, model: DeepModel, rows: dict[str, str]) -> None:
        self.graph, self._name = graph, model.name
        self._program = _trace(model, list(rows))
        self._rows = list(rows.values())
        self._values: dict[fx.Node, Any] = {}
        self._ranks = dict.fromkeys(self._rows, 2)

    def logits(self) -> str:
        """Give the name of the logits [rows]."""
        constants = {**self._program.state_dict, **self._program.constants}
        signature = self._program.graph_signature
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        rows = iter(self._rows)
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = constants[held[node.name]].detach() if node.name in held else next(rows)
            elif node.op == "call_function":
                self._values[node] = self._translated(node)
            elif node.op == "output":
                return self.tensor(self._value(node.args[0][0]))
        raise AssertionError("a graph has an output")

    def _translated(self, node: fx.Node) -> Any:
        given = fx.map_arg((node.args, node.kwargs), self._value)
        found = [self._value(one) for one in node.all_input_nodes]
        if not any(isinstance(one, str) for one in found):
            return node.target(*given[0], **given[1])  # type: ignore[operator]
        name = str(node.target).removeprefix("aten.").split(".")[0]
        if name not in RULES:
            raise Fm2Error(
                f"export: {self._name} uses torch's {node.target}, for which there is no rule yet: "
                "fm2.export.onnx_rules.RULES is the place for one"
            )
        made = RULES[name](self, *given[0], **{key: value for key, value in given[1].items() if key != "pin_memory"})
        if isinstance(made, str):
            self._ranks[made] = getattr(node.meta["val"], "ndim", 0)
        return made

    def _value(self, node: fx.Node) -> Any:
        return self._values[node]

    def tensor(self, value: Any) -> str:
        """Give the name of a tensor: one that a node makes, or a constant."""
        if isinstance(value, str):
            return value
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.array(value, np.float32)
        return self.graph.constant(f"constant {len(self.graph.constants)}", array)

    def node(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node whose inputs are tensors or numbers."""
        return self.graph.node(kind, *(self.tensor(value) for value in inputs), **attributes)

    def whole(self, *values: int) -> str:
        """Give whole numbers as a tensor."""
        return self.graph.constant("whole " + " ".join(map(str, values)), np.array(values, np.int64))

    def axes(self, of: Any, dims: Any) -> list[int]:
        """Count axes from the first: counted from the last, the runtime gets wrong shapes where there are no rows."""
        rank = self._ranks[of] if isinstance(of, str) else of.ndim
        return [
            dim % rank for dim in (dims if isinstance(dims, list | tuple) else range(rank) if dims is None else [dims])
        ]

    def shape(self, sizes: Sequence[Any]) -> str:
        """Give a shape; a size that is the number of rows is left to the runtime."""
        return self.whole(*(size if isinstance(size, int) else -1 for size in sizes))


def _trace(model: DeepModel, names: Sequence[str]) -> Any:
    example = tuple(torch.zeros(TRACED_ROWS, model.tables[name].width) for name in names)
    rows = torch.export.Dim("rows", min=2)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own parts warn of each other
        shapes = (tuple({0: rows} for _ in names),)
        return torch.export.export(_Score(model.eval(), names), example, dynamic_shapes=shapes).run_decompositions()


def _reduce(kind: str) -> Callable[..., str]:
    def rule(to: Translation, x: Any, dims: Any = None, keepdim: bool = False) -> str:
        return to.node(kind, x, to.whole(*to.axes(x, dims)), keepdims=int(keepdim))

    return rule


def _norm(to: Translation, x: Any, order: float = 2, dims: Any = None, keepdim: bool = False) -> str:
    if order != 2:
        raise Fm2Error(f"export: a norm of order {order} has no rule")
    return _reduce("ReduceL2")(to, x, dims, keepdim)


def _sum_of(kind: str) -> Callable[..., str]:
    def rule(to: Translation, x: Any, y: Any, alpha: float = 1) -> str:
        return to.node(kind, x, y if alpha == 1 else to.node("Mul", y, float(alpha)))

    return rule


def _plain(kind: str, **attributes: Any) -> Callable[..., str]:
    return lambda to, *inputs: to.node(kind, *inputs, **attributes)


def _slice(to: Translation, x: Any, dim: int = 0, start: int | None = 0, end: int | None = None, step: int = 1) -> str:
    last = END if end is None or not isinstance(end, int) else end
    return to.node("Slice", x, to.whole(start or 0), to.whole(last), to.whole(dim), to.whole(step))


def _normalized(to: Translation, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> tuple[str]:
    return (to.node("BatchNormalization", x, weight, bias, mean, variance, epsilon=float(rest[-1])),)


def _layer_norm(to: Translation, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[str]:
    scale = torch.ones(*shape) if weight is None else weight
    inputs = (x, scale) if bias is None else (x, scale, bias)
    return (to.node("LayerNormalization", *inputs, axis=-len(shape), epsilon=float(eps)),)


def _gelu(to: Translation, x: Any, approximate: str = "none") -> str:
    if approximate != "none":
        raise Fm2Error("export: gelu by an approximation has no rule")
    erf = to.node("Erf", to.node("Mul", x, 0.5**0.5))
    return to.node("Mul", to.node("Mul", x, 0.5), to.node("Add", erf, 1.0))


def _convolution(to: Translation, x: Any, weight: Any, bias: Any, strides: Any, padding: Any, *rest: Any) -> str:
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return to.node("Conv", *inputs, strides=list(strides), pads=[*padding, *padding])


def _max_pool(to: Translation, x: Any, size: Any, strides: Any, padding: Any, dilation: Any, up: bool) -> tuple[str]:
    sides = {"kernel_shape": list(size), "strides": list(strides or size), "pads": [*padding, *padding]}
    return (to.node("MaxPool", x, ceil_mode=int(up), **sides),)


def _split(to: Translation, x: Any, sizes: Sequence[int], dim: int = 0) -> tuple[str, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(_slice(to, x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True))


def _expand(to: Translation, x: Any, sizes: Sequence[Any]) -> str:
    # ONNX keeps what is there where 1 is asked for, as it is for -1 and for the number of rows.
    return to.node("Expand", x, to.whole(*(size if isinstance(size, int) and size > 0 else 1 for size in sizes)))


def _times_vector(to: Translation, matrix: Any, vector: Any) -> str:
    # By a column: onnxruntime fails at the product of a matrix without rows and a vector.
    column = vector[:, None] if isinstance(vector, Tensor) else to.node("Unsqueeze", vector, to.whole(1))
    return to.node("Squeeze", to.node("MatMul", matrix, column), to.whole(1))


# Torch's operations, by their names in torch.ops.aten, as run_decompositions leaves them.
RULES: dict[str, Callable[..., Any]] = {
    "add": _sum_of("Add"),
    "sub": _sum_of("Sub"),
    "mul": _plain("Mul"),
    "div": _plain("Div"),
    "neg": _plain("Neg"),
    "exp": _plain("Exp"),
    "log": _plain("Log"),
    "sqrt": _plain("Sqrt"),
    "reciprocal": _plain("Reciprocal"),
    "abs": _plain("Abs"),
    "pow": _plain("Pow"),
    "relu": _plain("Relu"),
    "tanh": _plain("Tanh"),
    "sigmoid": _plain("Sigmoid"),
    "leaky_relu": lambda to, x, slope=0.01: to.node("LeakyRelu", x, alpha=float(slope)),
    "gelu": _gelu,
    "mm": _plain("MatMul"),
    "bmm": _plain("MatMul"),
    "addmm": lambda to, bias, x, weight: to.node("Gemm", x, weight, bias),
    "addmv": lambda to, x, matrix, vector: to.node("Add", x, _times_vector(to, matrix, vector)),
    "mv": _times_vector,
    "sum": _reduce("ReduceSum"),
    "mean": _reduce("ReduceMean"),
    "amax": _reduce("ReduceMax"),
    "linalg_vector_norm": _norm,
    "_softmax": lambda to, x, dim, _: to.node("Softmax", x, axis=dim),
    "cat": lambda to, parts, dim=0: to.node("Concat", *parts, axis=dim),
    "view": lambda to, x, sizes: to.node("Reshape", x, to.shape(sizes)),
    "_unsafe_view": lambda to, x, sizes: to.node("Reshape", x, to.shape(sizes)),
    "reshape": lambda to, x, sizes: to.node("Reshape", x, to.shape(sizes)),
    "unsqueeze": lambda to, x, dim: to.node("Unsqueeze", x, to.whole(dim)),
    "squeeze": lambda to, x, dims: to.node("Squeeze", x, to.whole(*(dims if isinstance(dims, list) else [dims]))),
    "permute": lambda to, x, dims: to.node("Transpose", x, perm=list(dims)),
    "expand": _expand,
    "repeat": lambda to, x, times: to.node("Tile", x, to.whole(*times)),
    "select": lambda to, x, dim, at: to.node("Gather", x, torch.tensor(at), axis=dim),
    "index_select": lambda to, x, dim, places: to.node("Gather", x, places, axis=dim),
    "slice": _slice,
    "split_with_sizes": _split,
    "getitem": lambda to, parts, at: parts[at],
    "clone": lambda to, x, memory_format=None: x,
    "alias": lambda to, x: x,
    "_native_batch_norm_legit_no_training": _normalized,
    "native_layer_norm": _layer_norm,
    "convolution": _convolution,
    "max_pool2d_with_indices": _max_pool,
    "sym_size": lambda to, x, dim: "rows",
    # Multiples of the number of rows are left to the runtime as that is.
    "<built-in function mul>": lambda to, *sizes: "rows",
    "<built-in function floordiv>": lambda to, *sizes: "rows",
}
