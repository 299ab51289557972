"""The inputs of an ONNX graph, and the lookup of table rows.

Single-valued fields share the input ``ids`` [rows, fields]. A list field has two inputs of its own: the ids of its
values and their weights, both [rows, values]. Shorter lists are padded with values of weight 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fm2.models import FlatEmbedding, Model
from fm2.models.onnx.nodes import Nodes
from fm2.training.backend import to_numpy

Ids = Literal["int64", "int32"]
OUT_OF_RANGE = 1 << 42  # beyond any table, even after a multiplication by the dimension


class Lookups(Nodes):
    """A graph that looks rows of tables up.

    ``lists`` has the names of list fields by their index.
    """

    def __init__(self, onnx: Any, ids: Ids, lists: Mapping[int, str] | None = None) -> None:
        super().__init__(onnx)
        self._lists = dict(lists or {})
        self._ids_type = onnx.TensorProto.INT64 if ids == "int64" else onnx.TensorProto.INT32
        self._fields: dict[tuple[int, ...], str] = {}  # the checked ids of the single-valued fields, and of each list
        self._weights_of: dict[int, str] = {}

    def add_inputs(self, model: Model) -> None:
        """Add the inputs of a model."""
        sizes = model.field_sizes
        singles = tuple(field for field in range(len(sizes)) if field not in self._lists)
        if singles:
            self.add_input("ids", self._ids_type, len(singles))
            self._fields[singles] = self._check_ids("ids", [sizes[field] for field in singles])
        for field, name in self._lists.items():
            self.add_input(f"{name}.ids", self._ids_type, f"{name}.values")
            self.add_input(f"{name}.weights", self.onnx.TensorProto.FLOAT, f"{name}.values")
            self._fields[field,] = self._check_ids(f"{name}.ids", [sizes[field]])
            self._weights_of[field] = f"{name}.weights"

    def _check_ids(self, name: str, sizes: Sequence[int]) -> str:
        """Replace ids that their field does not have by an index that no table has."""
        ids = self.node("Cast", name, to=self.onnx.TensorProto.INT64)
        below = self.node("Less", ids, self.constant(f"{name}.sizes", np.array(sizes, np.int64)))
        valid = self.node("And", below, self.node("GreaterOrEqual", ids, self.integers(0)))
        return self.node("Where", valid, ids, self.integers(OUT_OF_RANGE))

    def gather(self, name: str, table: FlatEmbedding) -> str:
        """Add the lookup of all fields' rows in a table, side by side: [rows, width].

        The row of a list field is the weighted sum of its features' rows.
        """
        parts = [
            self._gather_list(name, table, fields[0]) if fields[0] in self._lists else self._gather(name, table, fields)
            for fields in self._fields
        ]
        if not self._lists:
            return parts[0]
        columns = [np.arange(start, start + dim) for start, dim in zip(table.starts, table.dims, strict=True)]
        order = np.concatenate([columns[field] for fields in self._fields for field in fields])
        joined = self.node("Concat", *parts, axis=1)
        return self.node("Gather", joined, self.constant(f"{name}.columns", np.argsort(order)), axis=1)

    def _gather(self, name: str, table: FlatEmbedding, fields: Sequence[int]) -> str:
        """Add the lookup of the rows of single-valued fields."""
        units = [table.dims[field] // table.unit for field in fields]
        indices = self.row_starts(name, table, fields, table.unit)
        if max(units) > 1:
            positions = np.repeat(np.arange(len(units)), units)
            within = np.concatenate([np.arange(count) for count in units])
            indices = self.node("Gather", indices, self.constant(f"{name}.fields", positions), axis=1)
            indices = self.node("Add", indices, self.constant(f"{name}.within", within))
        if table.unit == 1:
            return self.node("Gather", self.table(name, table, -1), indices)
        rows = self.node("Gather", self.table(name, table, -1, table.unit), indices)
        return self.node("Reshape", rows, self.integers(-1, sum(table.dims[field] for field in fields)))

    def _gather_list(self, name: str, table: FlatEmbedding, field: int) -> str:
        """Add the weighted sum of the rows of a list field's values."""
        dim = table.dims[field]
        starts = self.node("Unsqueeze", self.row_starts(name, table, (field,), table.unit), self.integers(2))
        indices = self.node("Add", starts, self.integers(*range(dim // table.unit)))
        rows = self.node("Gather", self.table(name, table, *([-1] if table.unit == 1 else [-1, table.unit])), indices)
        by_value = self.node("Reshape", rows, self.integers(0, 0, dim))  # 0 keeps the numbers of rows and values
        weights = self.node("Unsqueeze", self._weights_of[field], self.integers(2))
        return self.sum(self.node("Mul", by_value, weights))

    def row_starts(self, name: str, table: FlatEmbedding, fields: Sequence[int], unit: int) -> str:
        """Add the index of each id's row in the flat table, in units of so many floats."""
        strides = [table.dims[field] // unit for field in fields]
        offsets = [table.offsets[field] // unit for field in fields]
        scaled = self.node("Mul", self._fields[tuple(fields)], self.constant(f"{name}.{fields[0]}.strides", strides))
        return self.node("Add", scaled, self.constant(f"{name}.{fields[0]}.offsets", offsets))

    def table(self, name: str, table: FlatEmbedding, *shape: int) -> str:
        """Add the weights of a table as a constant."""
        return self.constant(name, to_numpy(table.weight).reshape(shape))

    def ids_of(self, field: int) -> str:
        """Add the ids of a single-valued field, [rows]."""
        singles = next(fields for fields in self._fields if field in fields)
        column = self.constant(f"column {field}", np.array(singles.index(field), np.int64))
        return self.node("Gather", self._fields[singles], column, axis=1)

    def ids_by_group(self) -> list[tuple[Sequence[int], str, str | None]]:
        """Return the fields, ids and weights of the single-valued fields, which have no weights, and of each list."""
        return [(fields, ids, self._weights_of.get(fields[0])) for fields, ids in self._fields.items()]
