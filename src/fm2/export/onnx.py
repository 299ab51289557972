"""``fm2.export_onnx``: write a model as an ONNX graph, from ids to click probabilities.

The graph is built node by node. It looks rows up as
:class:`fm2.models.FlatEmbedding` does. An id that its field does not have is
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
for FmFM here). The third would replace the 200 lines of ``fm2.models.onnx.rules`` by about 40 that merge two graphs,
and new networks would need no new rules, but it needs two more packages and a workaround for empty batches of four
networks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
from torch import Tensor, nn

from fm2.artifacts.calibration import Calibration
from fm2.compression.moments import field_matrix
from fm2.compression.spectrum import assemble_blocks
from fm2.errors import Fm2Error, require
from fm2.export.onnx_lookups import Ids, Lookups
from fm2.files import atomic_file, check_replaceable, write_errors
from fm2.models import FFM, LR, FactorizationMachine, GatheredModel, Model, Poly2
from fm2.models.family.diagonal import Constant, Diagonal
from fm2.models.hashing import FIRST, INCREMENT, SECOND
from fm2.models.onnx.rules import Translation
from fm2.remote.paths import writes
from fm2.training.backend import to_numpy
from fm2.training.run import Run

MAX_BYTES = 2_000_000_000


@writes("out")
def export_onnx(run: Run | str | Path, out: str | Path, *, ids: Ids = "int64") -> Path:
    """Write the best model of a run as an ONNX file: ``ids`` [rows, fields] to ``probabilities`` [rows].

    Use the encoder of the run (``run.encoder.encode``) or of a compiled model (``fm2.load(...).encode``) to turn raw
    values into ids. A list field is not part of ``ids``: it has inputs of its own, ``<field>.ids`` and
    ``<field>.weights`` [rows, values], where padding has the weight 0; :func:`fm2.onnx_inputs` makes them. The metadata
    of the file has the names and sizes of the fields. An existing ONNX file is replaced.
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
    schema = run.encoder.schema
    lists = {index: field.name for index, field in enumerate(schema.fields) if field.is_list}
    model = Graph(onnx, ids, lists).build(run.model, run.calibration)
    metadata = {"fields": schema.names, "sizes": run.model.field_sizes, "model": run.model.name}
    metadata |= {"list_fields": list(lists.values())} if lists else {}
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in metadata.items()})
    onnx.checker.check_model(model)
    with write_errors(out, "export"), atomic_file(out) as partial:
        partial.write_bytes(model.SerializeToString())
    return out


class _Score(nn.Module):
    """The part of a model after the lookups, with positional arguments as torch.export needs them."""

    def __init__(self, model: GatheredModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, *rows: Tensor) -> Tensor:
        return self.model.score(**dict(zip(self.model.tables, rows, strict=True)))


class Graph(Lookups):
    """The graph of a model."""

    def build(self, model: Model, calibration: Calibration | None = None) -> Any:
        """Return the ONNX model."""
        self.add_inputs(model)
        logits = self._logits(model)
        self.node("Sigmoid", self._calibrated(calibration, logits) if calibration else logits, out="probabilities")
        return self.model(model.name, "probabilities")

    def _logits(self, model: Model) -> str:
        if isinstance(model, FactorizationMachine):
            pairs = self._factorization_machine(model)
        elif isinstance(model, FFM):
            pairs = [self._field_aware_pairs(model)]
        elif isinstance(model, Poly2):
            pairs = self._hashed_pairs(model)
        elif isinstance(model, LR):
            pairs = []
        elif isinstance(model, GatheredModel):
            rows = {self.gather(name, table): table.width for name, table in model.tables.items()}
            return Translation(self, _Score(model), rows, f"export: {model.name}").result()
        else:
            raise Fm2Error(f"export: the model '{model.name}' cannot be exported to ONNX")
        terms = [self.constant("bias", to_numpy(model.bias).reshape(1)), *pairs]
        if "linear" in model.tables:
            terms.append(self.sum(self.gather("linear", model.tables["linear"])))
        return self.node("Sum", *terms)

    def _calibrated(self, calibration: Calibration, logits: str) -> str:
        """Add the calibration: find the segment of each logit by counting the inner knots that it has reached."""
        knots = calibration.knots
        slopes = np.diff(knots[:, 1]) / np.diff(knots[:, 0])
        inner = self.constant("calibration.inner", knots[1:-1, 0].astype(np.float32))
        reached = self.node("GreaterOrEqual", self.node("Unsqueeze", logits, self.integers(1)), inner)
        segment = self.sum(self.node("Cast", reached, to=self.onnx.TensorProto.INT64))
        begin, value, slope = (
            self.node("Gather", self.constant(f"calibration.{name}", values.astype(np.float32)), segment)
            for name, values in (("begin", knots[:-1, 0]), ("value", knots[:-1, 1]), ("slope", slopes))
        )
        terms = [value, self.node("Mul", slope, self.node("Sub", logits, begin))]
        if calibration.shifts is not None:
            assert calibration.field is not None
            features = self.ids_of(calibration.field)
            terms.append(self.node("Gather", self.constant("calibration.shifts", calibration.shifts), features))
        return self.node("Sum", *terms)

    def _factorization_machine(self, model: FactorizationMachine) -> list[str]:
        """Add 1/2 vᵀ S v and, if the model has vectors w_F, wᵀ v."""
        rows = self.gather("embedding", model.embedding)
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

    def _field_aware_pairs(self, model: FFM) -> str:
        """Add the products of the vectors that two fields have for each other."""
        others = len(model.field_sizes) - 1
        i, j = np.triu_indices(others + 1, 1)
        rows = self.gather("embedding", model.embedding)
        vectors = self.node("Reshape", rows, self.integers(-1, (others + 1) * others, model.dim))
        first = self.node("Gather", vectors, self.constant("first vectors", i * others + j - 1), axis=1)
        second = self.node("Gather", vectors, self.constant("second vectors", j * others + i), axis=1)
        return self.sum(self.node("Mul", first, second), 1, 2)

    def _hashed_pairs(self, model: Poly2) -> list[str]:
        """Add the sums of the weights of pairs, each found by the hash of ``fm2.models.hashing``."""
        terms = []
        groups = [(self._keys(fields, ids), weights, len(fields)) for fields, ids, weights in self.ids_by_group()]
        for keys, weights, fields in groups:
            if weights is None and fields > 1:  # pairs of single-valued fields
                i, j = np.triu_indices(fields, 1)
                first = self.node("Gather", keys, self.constant("first fields", i), axis=1)
                second = self.node("Gather", keys, self.constant("second fields", j), axis=1)
                terms.append(self.sum(self._pair_weights(model, first, second)))
        for (keys, weights, _), (others, other_weights, _) in combinations(groups, 2):
            first, second = (
                self.node("Unsqueeze", keys, self.integers(2)),
                self.node("Unsqueeze", others, self.integers(1)),
            )
            pairs = self._pair_weights(model, first, second)
            for factor, axis in ((weights, 2), (other_weights, 1)):
                if factor is not None:
                    pairs = self.node("Mul", pairs, self.node("Unsqueeze", factor, self.integers(axis)))
            terms.append(self.sum(pairs, 1, 2))
        return terms

    def _keys(self, fields: Sequence[int], ids: str) -> str:
        """Add the keys of features.

        Runtimes multiply signed integers and shift unsigned ones, so the same bits are cast back and forth.
        """
        shifted = self.constant(f"field {fields[0]} << 32", np.array(fields, np.int64) << 32)
        z = self.node("Add", self.node("Add", ids, shifted), self.integers(INCREMENT))
        z = self.node("Mul", self._xor_shifted(z, 30), self.integers(FIRST))
        z = self.node("Mul", self._xor_shifted(z, 27), self.integers(SECOND))
        return self.node("BitwiseOr", self._xor_shifted(z, 31), self.integers(1))

    def _pair_weights(self, model: Poly2, keys: str, others: str) -> str:
        slots = self._shift_right(self.node("Mul", keys, others), 64 - model.hash_bits)
        return self.node("Gather", self.table("pairs", model.pairs, -1), slots)

    def _shift_right(self, value: str, bits: int) -> str:
        types = self.onnx.TensorProto
        unsigned = self.node("Cast", value, to=types.UINT64)
        distance = self.constant(f"uint64 {bits}", np.array(bits, np.uint64))
        return self.node("Cast", self.node("BitShift", unsigned, distance, direction="RIGHT"), to=types.INT64)

    def _xor_shifted(self, value: str, bits: int) -> str:
        return self.node("BitwiseXor", value, self._shift_right(value, bits))
