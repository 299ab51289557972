"""``fm2.export_onnx``: write a model as an ONNX graph, from ids to click probabilities.

The graph is built node by node. It looks rows up as :class:`FlatEmbedding` does. An id that its field does not have is
replaced by an index that no table has, so that the runtime raises an error.

Why not ``torch.onnx.export(dynamo=True)``? Measured on all 26 models with default settings, for 39 fields of 2,000
features (torch 2.13, onnxscript 0.7, onnxruntime 1.31, one thread). Latencies are relative, median of the 19 networks:

                                       any rows   0 rows     1 row   1,000 rows   export   packages
    this module                        26 of 26   26 of 26   1.00    1.00         0.8 s    onnx
    torch.onnx.export                  23 of 26   16 of 26   1.21    1.05         1.6 s    onnx, onnxscript, onnx_ir
    our lookups + torch.onnx.export    26 of 26   22 of 26   0.99    1.00         1.3 s    onnx, onnxscript, onnx_ir

All three agree with torch within 4e-7. The first two also raise errors for ids out of range and write files of similar
size; the third was not checked for that. torch.onnx.export fixes the number of rows of Poly2, FFM and FvFM, writes
nodes on which onnxruntime fails for an empty batch, and makes FM and FmFM 1.5 to 1.7 times slower for one row (18 µs
for FmFM here). The third would replace the 200 lines of ``onnx_rules`` by about 40 that merge two graphs, and new
networks would need no new rules, but it needs two more packages and a workaround for empty batches of four networks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fm2 import __version__
from fm2.compression.moments import field_matrix
from fm2.compression.spectrum import assemble_blocks
from fm2.errors import Fm2Error, require
from fm2.export.onnx_rules import Translation
from fm2.files import atomic_file, check_replaceable, write_errors
from fm2.models import FFM, LR, FactorizationMachine, FlatEmbedding, GatheredModel, Model, Poly2
from fm2.models.family.diagonal import Constant, Diagonal
from fm2.models.hashing import FIRST, INCREMENT, SECOND
from fm2.training.backend import to_numpy
from fm2.training.run import Run

Ids = Literal["int64", "int32"]
OPSET, IR_VERSION = 18, 10  # supported by runtimes since 2024
OUT_OF_RANGE = 1 << 42  # beyond any table, even after a multiplication by the dimension
MAX_BYTES = 2_000_000_000


def export_onnx(run: Run | str | Path, out: str | Path, *, ids: Ids = "int64") -> Path:
    """Write the best model of a run as an ONNX file: ``ids`` [rows, fields] to ``probabilities`` [rows].

    Use the encoder of the run (``run.encoder.encode``) or of a compiled model (``fm2.load(...).encode``) to turn raw
    values into ids. The metadata of the file has the names and sizes of the fields. An existing ONNX file is replaced.
    """
    if ids not in get_args(Ids):
        raise Fm2Error(f"export: ids must be one of {', '.join(get_args(Ids))}, got '{ids}'")
    onnx = require("onnx", "onnx", "export")
    out = Path(out)
    check_replaceable(out, "export", "ONNX file", "\x08")  # the tag of the version, the first field of the file
    run = Run.of(run)
    size = 4 * sum(parameter.numel() for parameter in run.model.parameters())
    if size > MAX_BYTES:
        raise Fm2Error(f"export: the model has {size:,} bytes, more than the 2 GB of an ONNX file; use fm2 compile")
    model = Graph(onnx, ids).build(run.model)
    metadata = {"fields": run.encoder.schema.names, "sizes": run.model.field_sizes, "model": run.model.name}
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in metadata.items()})
    onnx.checker.check_model(model)
    with write_errors(out, "export"), atomic_file(out) as partial:
        partial.write_bytes(model.SerializeToString())
    return out


class Graph:
    """The nodes and constants of a graph; methods that add a node return the name of its output."""

    def __init__(self, onnx: Any, ids: Ids) -> None:
        self.onnx = onnx
        self.ids = ids
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def build(self, model: Model) -> Any:
        """Return the ONNX model."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        sizes = model.field_sizes
        self.node("Sigmoid", self._logits(model, self._check_ids(sizes)), out="probabilities")
        dtype = types.INT64 if self.ids == "int64" else types.INT32
        graph = helper.make_graph(
            self.nodes,
            model.name,
            [helper.make_tensor_value_info("ids", dtype, ["rows", len(sizes)])],
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

    def gather(self, name: str, table: FlatEmbedding, ids: str) -> str:
        """Add the lookup of all fields' rows in a table, side by side: [rows, width]."""
        units = [dim // table.unit for dim in table.dims]
        indices = self._row_starts(name, table, ids, table.unit)
        if max(units) > 1:
            fields = np.repeat(np.arange(len(units)), units)
            within = np.concatenate([np.arange(count) for count in units])
            indices = self.node("Gather", indices, self.constant(f"{name}.fields", fields), axis=1)
            indices = self.node("Add", indices, self.constant(f"{name}.within", within))
        if table.unit == 1:
            return self.node("Gather", self._weights(name, table, -1), indices)
        rows = self.node("Gather", self._weights(name, table, -1, table.unit), indices)
        return self.node("Reshape", rows, self.integers(-1, table.width))

    def _check_ids(self, sizes: Sequence[int]) -> str:
        """Replace ids that their field does not have by an index that no table has."""
        ids = self.node("Cast", "ids", to=self.onnx.TensorProto.INT64)
        below = self.node("Less", ids, self.constant("sizes", np.array(sizes, np.int64)))
        valid = self.node("And", below, self.node("GreaterOrEqual", ids, self.integers(0)))
        return self.node("Where", valid, ids, self.integers(OUT_OF_RANGE))

    def _row_starts(self, name: str, table: FlatEmbedding, ids: str, unit: int) -> str:
        """Add the index of each id's row in the flat table, in units of so many floats."""
        strides = self.constant(f"{name}.strides", np.array(table.dims, np.int64) // unit)
        offsets = self.constant(f"{name}.offsets", np.array(table.offsets, np.int64) // unit)
        return self.node("Add", self.node("Mul", ids, strides), offsets)

    def _weights(self, name: str, table: FlatEmbedding, *shape: int) -> str:
        return self.constant(name, to_numpy(table.weight).reshape(shape))

    def _logits(self, model: Model, ids: str) -> str:
        if isinstance(model, FactorizationMachine):
            pairs = self._factorization_machine(model, ids)
        elif isinstance(model, FFM):
            pairs = [self._field_aware_pairs(model, ids)]
        elif isinstance(model, Poly2):
            pairs = [self._hashed_pairs(model, ids)]
        elif isinstance(model, LR):
            pairs = []
        elif isinstance(model, GatheredModel):
            rows = {name: self.gather(name, table, ids) for name, table in model.tables.items()}
            return Translation(self, model, rows).logits()
        else:
            raise Fm2Error(f"export: the model '{model.name}' cannot be exported to ONNX")
        terms = [self.constant("bias", to_numpy(model.bias).reshape(1)), *pairs]
        if "linear" in model.tables:
            terms.append(self.sum(self.gather("linear", model.tables["linear"], ids)))
        return self.node("Sum", *terms)

    def _factorization_machine(self, model: FactorizationMachine, ids: str) -> list[str]:
        """Add 1/2 vᵀ S v and, if the model has vectors w_F, wᵀ v."""
        rows = self.gather("embedding", model.embedding, ids)
        if isinstance(model.interaction, Constant):
            pairs = self._constant_pairs(model, rows)
        elif isinstance(model.interaction, Diagonal):
            pairs = self._diagonal_pairs(model, model.interaction, rows)
        else:
            S = assemble_blocks(model.embedding.dims, lambda i, j: field_matrix(model, i, j))
            product = self.node("MatMul", rows, self.constant("field_matrices", S.astype(np.float32)))
            pairs = self.sum(self.node("Mul", rows, product))
        terms = [self.node("Mul", pairs, self.constant("half", np.array(0.5, np.float32)))]
        if model.field_linear is not None:
            vectors = self.constant("field_linear", to_numpy(model.field_linear))
            terms.append(self.sum(self.node("Mul", rows, vectors)))
        return terms

    def _by_field(self, model: FactorizationMachine, rows: str) -> str:
        return self.node("Reshape", rows, self.integers(-1, len(model.field_sizes), model.embedding.dims[0]))

    def _constant_pairs(self, model: FactorizationMachine, rows: str) -> str:
        """Add vᵀ S v of an FM: the square of the embeddings' sum minus the sum of their squares."""
        by_field = self._by_field(model, rows)
        total = self.sum(by_field)
        pairs = self.node("Sub", self.node("Mul", total, total), self.sum(self.node("Mul", by_field, by_field)))
        if model.signs:
            pairs = self.node("Mul", pairs, self.constant("signs", np.array(model.signs, np.float32)))
        return self.sum(pairs)

    def _diagonal_pairs(self, model: FactorizationMachine, interaction: Diagonal, rows: str) -> str:
        """Add vᵀ S v where S is one n × n matrix per coordinate: 2.5 times faster than the dense S for 1,000 rows."""
        by_coordinate = self.node("Transpose", self._by_field(model, rows), perm=[2, 0, 1])
        matrices = self.constant("field_matrices", to_numpy(interaction.matrices()))
        product = self.node("MatMul", by_coordinate, matrices)
        return self.sum(self.node("Mul", by_coordinate, product), 0, 2)

    def _field_aware_pairs(self, model: FFM, ids: str) -> str:
        """Add the products of the vectors that two features have for each other's fields."""
        i, j = np.triu_indices(len(model.field_sizes), 1)
        vectors = self._weights("embedding", model.embedding, -1, model.dim)
        starts = self._row_starts("embedding", model.embedding, ids, model.dim)
        sides = []
        for side, fields, positions in (("first", i, j - 1), ("second", j, i)):
            indices = self.node("Gather", starts, self.constant(f"{side} fields", fields), axis=1)
            indices = self.node("Add", indices, self.constant(f"{side} positions", positions))
            sides.append(self.node("Gather", vectors, indices))
        return self.sum(self.node("Mul", *sides), 1, 2)

    def _hashed_pairs(self, model: Poly2, ids: str) -> str:
        """Add the sum of the pairs' weights, each found by the hash of ``fm2.models.hashing``.

        Runtimes multiply signed integers and shift unsigned ones, so the same bits are cast back and forth.
        """
        i, j = np.triu_indices(len(model.field_sizes), 1)
        fields = self.constant("field << 32", np.arange(len(model.field_sizes), dtype=np.int64) << 32)
        z = self.node("Add", self.node("Add", ids, fields), self.integers(INCREMENT))
        z = self.node("Mul", self._xor_shifted(z, 30), self.integers(FIRST))
        z = self.node("Mul", self._xor_shifted(z, 27), self.integers(SECOND))
        keys = self.node("BitwiseOr", self._xor_shifted(z, 31), self.integers(1))
        first = self.node("Gather", keys, self.constant("first fields", i), axis=1)
        second = self.node("Gather", keys, self.constant("second fields", j), axis=1)
        slots = self._shift_right(self.node("Mul", first, second), 64 - model.hash_bits)
        return self.sum(self.node("Gather", self._weights("pairs", model.pairs, -1), slots))

    def _shift_right(self, value: str, bits: int) -> str:
        types = self.onnx.TensorProto
        unsigned = self.node("Cast", value, to=types.UINT64)
        distance = self.constant(f"uint64 {bits}", np.array(bits, np.uint64))
        return self.node("Cast", self.node("BitShift", unsigned, distance, direction="RIGHT"), to=types.INT64)

    def _xor_shifted(self, value: str, bits: int) -> str:
        return self.node("BitwiseXor", value, self._shift_right(value, bits))
