"""``fm2.export_onnx``: a run's best model as an ONNX graph, from ids to click probabilities.

The graph is built node by node from the model's own tables, which it looks up as :class:`FlatEmbedding` does. An id
that its field does not have is an error of the runtime's, as it is here: it is sent to a place that no table has.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from fm2 import __version__
from fm2.errors import Fm2Error, require
from fm2.export.onnx_rules import Translation
from fm2.files import atomic_file, check_replaceable
from fm2.models import FFM, LR, DeepModel, FactorizationMachine, FlatEmbedding, Model, Poly2
from fm2.models.hashing import FIRST, INCREMENT, SECOND
from fm2.training.run import Run

Ids = Literal["int64", "int32"]
OPSET, IR_VERSION = 18, 10  # old enough for runtimes of 2024
NOWHERE = 1 << 42  # beyond any table, and still so when multiplied by a dimension
MOST_BYTES = 2_000_000_000


def export_onnx(run: Run | str | Path, out: str | Path, *, ids: Ids = "int64") -> Path:
    """Write the best model of a run as an ONNX file: ``ids`` [rows, fields] to ``probabilities`` [rows].

    Raw values become ids by the run's own encoder (``run.encoder.encode``), or by a compiled model's
    (``fm2.load(...).encode``). The fields' names and sizes are in the file's metadata. An ONNX file that is there
    already is replaced.
    """
    if ids not in get_args(Ids):
        raise Fm2Error(f"export: ids are '{ids}'; they are one of {', '.join(get_args(Ids))}")
    onnx, out = require("onnx", "onnx", "export"), Path(out)
    check_replaceable(out, "export", "ONNX file", "\x08")  # as the version, its first field, begins
    opened = run if isinstance(run, Run) else Run.open(run)
    size = 4 * sum(parameter.numel() for parameter in opened.model.parameters())
    if size > MOST_BYTES:
        raise Fm2Error(
            f"export: the model has {size:,} bytes, and an ONNX file has 2 GB at most; fm2 compile takes any"
        )
    made = Graph(onnx, ids).build(opened.model)
    described = {"fields": opened.encoder.schema.names, "sizes": opened.model.field_sizes, "model": opened.model.name}
    onnx.helper.set_model_props(made, {key: json.dumps(value) for key, value in described.items()})
    onnx.checker.check_model(made)
    try:
        with atomic_file(out) as partial:
            partial.write_bytes(made.SerializeToString())
    except OSError as refused:
        raise Fm2Error(f"export: {out}: {refused.strerror or refused}") from refused
    return out


class Graph:
    """Nodes and constants of a graph; every method gives the name of the tensor that it adds."""

    def __init__(self, onnx: Any, ids: Ids) -> None:
        self.onnx, self.ids = onnx, ids
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def build(self, model: Model) -> Any:
        """Give the ONNX model."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        sizes = model.field_sizes
        checked = self._checked(sizes)
        self.node("Sigmoid", self._logits(model, checked), out="probabilities")
        kind = types.INT64 if self.ids == "int64" else types.INT32
        graph = helper.make_graph(
            self.nodes,
            model.name,
            [helper.make_tensor_value_info("ids", kind, ["rows", len(sizes)])],
            [helper.make_tensor_value_info("probabilities", types.FLOAT, ["rows"])],
            list(self.constants.values()),
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="fm2",
            producer_version=__version__,
        )

    def _logits(self, model: Model, checked: str) -> str:
        if isinstance(model, DeepModel):
            rows = {name: self.gathered(name, table, checked) for name, table in model.tables.items()}
            return Translation(self, model, rows).logits()
        terms = [self.constant("bias", model.bias.detach().numpy().reshape(1))]
        for name, table in model.tables.items():
            if name == "linear":
                terms.append(self.sum(self.gathered("linear", table, checked)))
        if isinstance(model, FactorizationMachine):
            terms.extend(self._machine(model, checked))
        elif isinstance(model, FFM):
            terms.append(self._field_aware(model, checked))
        elif isinstance(model, Poly2):
            terms.append(self._hashed_pairs(model, checked))
        elif not isinstance(model, LR):
            raise Fm2Error(f"export: there is no ONNX graph of the model '{model.name}'")
        return self.node("Sum", *terms)

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"{kind}.{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(self, name: str, values: Any) -> str:
        self.constants[name] = self.onnx.numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def number(self, value: int, kind: type = np.int64) -> str:
        return self.constant(f"{kind.__name__} {value}", np.array(value, kind))

    def sum(self, of: str, axes: Sequence[int] = (1,)) -> str:
        over = self.constant("axes " + " ".join(map(str, axes)), np.array(axes, np.int64))
        return self.node("ReduceSum", of, over, keepdims=0)

    def _checked(self, sizes: Sequence[int]) -> str:
        """Give ids that are in their fields as they are, and others a place that no table has."""
        ids = self.node("Cast", "ids", to=self.onnx.TensorProto.INT64)
        below = self.node("Less", ids, self.constant("sizes", np.array(sizes, np.int64)))
        within = self.node("And", below, self.node("GreaterOrEqual", ids, self.number(0)))
        return self.node("Where", within, ids, self.number(NOWHERE))

    def begins(self, name: str, table: FlatEmbedding, checked: str, unit: int) -> str:
        """Give where the rows of ids begin, counted in units of so many floats."""
        rows = self.constant(f"{name}.units", np.array(table.dims, np.int64) // unit)
        offsets = self.constant(f"{name}.offsets", np.array(table.offsets, np.int64) // unit)
        return self.node("Add", self.node("Mul", checked, rows), offsets)

    def weights(self, name: str, table: FlatEmbedding, *shape: int) -> str:
        return self.constant(name, table.weight.detach().cpu().numpy().reshape(shape))

    def gathered(self, name: str, table: FlatEmbedding, checked: str) -> str:
        """Give the rows of a table side by side: [rows, width]."""
        units = [dim // table.unit for dim in table.dims]
        places = self.begins(name, table, checked, table.unit)
        if max(units) > 1:
            fields = np.repeat(np.arange(len(units)), units)
            within = np.concatenate([np.arange(count) for count in units])
            places = self.node("Gather", places, self.constant(f"{name}.fields", fields), axis=1)
            places = self.node("Add", places, self.constant(f"{name}.within", within))
        if table.unit == 1:
            return self.node("Gather", self.weights(name, table, -1), places)
        found = self.node("Gather", self.weights(name, table, -1, table.unit), places)
        return self.node("Reshape", found, self.constant(f"{name}.shape", np.array([-1, table.width], np.int64)))

    def _machine(self, model: FactorizationMachine, checked: str) -> list[str]:
        """Give 1/2 vᵀ S v and the linear part's wᵀ v."""
        rows = self.gathered("embedding", model.embedding, checked)
        half = self.constant("half", np.array(0.5, np.float32))
        if model.spec.interaction == "constant":
            # The sum of all embeddings takes the place of S; what each has with itself is taken away again.
            dim = model.embedding.dims[0]
            shape = self.constant("by field", np.array([-1, len(model.field_sizes), dim], np.int64))
            by_field = self.node("Reshape", rows, shape)
            total = self.sum(by_field)
            pairs = self.node("Sub", self.node("Mul", total, total), self.sum(self.node("Mul", by_field, by_field)))
            if model.signs:
                pairs = self.node("Mul", pairs, self.constant("signs", np.array(model.signs, np.float32)))
            terms = [self.node("Mul", half, self.sum(pairs))]
        else:
            products = self.node("MatMul", rows, self.constant("field_matrices", _symmetric(model)))
            terms = [self.node("Mul", half, self.sum(self.node("Mul", rows, products)))]
        if model.field_linear is not None:
            vectors = self.constant("field_linear", model.field_linear.detach().cpu().numpy())
            terms.append(self.sum(self.node("Mul", rows, vectors)))
        return terms

    def _pairs(self, model: Model) -> NDArray[np.int64]:
        return np.array(list(itertools.combinations(range(len(model.field_sizes)), 2)), np.int64).reshape(-1, 2)

    def _field_aware(self, model: FFM, checked: str) -> str:
        """Give the products of the vectors that are meant for each other."""
        pairs = self._pairs(model)
        vectors = self.weights("embedding", model.embedding, -1, model.dim)
        begins = self.begins("embedding", model.embedding, checked, model.dim)
        found = []
        for side, place in (("first", pairs[:, 1] - 1), ("second", pairs[:, 0])):
            fields = self.constant(f"{side} fields", pairs[:, 0 if side == "first" else 1])
            at = self.node("Gather", begins, fields, axis=1)
            at = self.node("Add", at, self.constant(f"{side} places", place))
            found.append(self.node("Gather", vectors, at))
        return self.sum(self.node("Mul", *found), (1, 2))

    def _hashed_pairs(self, model: Poly2, checked: str) -> str:
        """Give the sum of the pairs' weights, each found by the hash of ``fm2.models.hashing``.

        Runtimes multiply signed numbers and shift unsigned ones: the same bits are cast to and fro.
        """
        pairs = self._pairs(model)
        high = self.constant("field << 32", np.arange(len(model.field_sizes), dtype=np.int64) << 32)
        z = self.node("Add", self.node("Add", checked, high), self.number(INCREMENT))
        z = self.node("Mul", self._mixed(z, 30), self.number(FIRST))
        z = self.node("Mul", self._mixed(z, 27), self.number(SECOND))
        keys = self.node("BitwiseOr", self._mixed(z, 31), self.number(1))
        sides = [
            self.node("Gather", keys, self.constant(f"{side} fields", pairs[:, column]), axis=1)
            for column, side in enumerate(("first", "second"))
        ]
        slots = self._shifted(self.node("Mul", *sides), 64 - model.hash_bits)
        return self.sum(self.node("Gather", self.weights("pairs", model.pairs, -1), slots))

    def _shifted(self, value: str, bits: int) -> str:
        types = self.onnx.TensorProto
        unsigned = self.node("Cast", value, to=types.UINT64)
        shifted = self.node("BitShift", unsigned, self.number(bits, np.uint64), direction="RIGHT")
        return self.node("Cast", shifted, to=types.INT64)

    def _mixed(self, value: str, bits: int) -> str:
        return self.node("BitwiseXor", value, self._shifted(value, bits))


def _symmetric(model: FactorizationMachine) -> NDArray[np.float32]:
    """Give S: all field matrices in one, D × D."""
    starts, dims = model.embedding.starts, model.embedding.dims
    whole = torch.zeros(model.embedding.width, model.embedding.width)
    for i, j in itertools.permutations(range(len(dims)), 2):
        whole[starts[i] : starts[i] + dims[i], starts[j] : starts[j] + dims[j]] = model.field_matrix(i, j)
    return whole.numpy()
