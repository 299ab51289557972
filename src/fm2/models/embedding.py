"""Sparse tables: one flat buffer of floats for all fields, so that each field can have its own dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error
from fm2.models.initial import Seed, fill_normal, generator
from fm2.models.rows import Rows, TensorRows


@dataclass
class TableGradient:
    """Accumulates the gradient of a table; ``begins`` holds where in ``values`` each feature's row begins.

    A sparse gradient contains each touched row once. Duplicate rows are merged here, because torch would have to
    compare every single float of the flat buffer.
    """

    values: Tensor
    begins: Tensor
    elements: Tensor | None
    shape: torch.Size

    @classmethod
    def sparse(cls, weight: Tensor, begins: Tensor, offset: Tensor, dim: Tensor) -> TableGradient:
        """Return a zero gradient of the touched rows; a field's rows begin at its ``offset``, ``dim`` floats each.

        Offsets ascend.
        """
        touched, index = torch.unique(begins, return_inverse=True)
        lengths = dim[torch.bucketize(touched, offset, right=True) - 1]
        packed = lengths.cumsum(0) - lengths
        elements = (touched - packed).repeat_interleave(lengths)
        elements += torch.arange(len(elements), device=elements.device)
        return cls(weight.new_zeros(len(elements)), packed[index], elements, weight.shape)

    def add(self, units: Tensor, values: Tensor) -> None:
        """Add each row of ``values`` to the unit with that index; a unit is as long as a row of ``values``."""
        self.values.view(-1, values.shape[1]).index_add_(0, units.reshape(-1), values)

    def clear_zeros_of(self, weight: Tensor) -> None:
        """Set the gradient of weights that are zero to zero."""
        own = weight if self.elements is None else weight[self.elements]
        self.values.masked_fill_(own == 0, 0)

    def tensor(self) -> Tensor:
        """Return the gradient as a tensor for autograd."""
        if self.elements is None:
            return self.values
        indices = self.elements[None]
        return torch.sparse_coo_tensor(indices, self.values, self.shape, is_coalesced=True, check_invariants=False)


def per_field(dims: int | Sequence[int], n_fields: int, name: str) -> tuple[int, ...]:
    """Return one dimension per field, from a sequence of them or from one dimension for all fields.

    ``name`` is the model's, for error messages.
    """
    field_dims = (dims,) * n_fields if isinstance(dims, int) else tuple(dims)
    if len(field_dims) != n_fields:
        raise Fm2Error(f"{name}: got {len(field_dims)} dimensions for {n_fields} fields; pass one, or one per field")
    for field, dim in enumerate(field_dims):
        if dim < 1:
            raise Fm2Error(f"{name}: field {field} has dimension {dim}; dimensions must be at least 1")
    return field_dims


def check_owners(
    owners: Sequence[int] | None, field_sizes: Sequence[int], dims: Sequence[int], name: str
) -> tuple[int, ...]:
    """Return for each field the index of the field whose rows it uses; without ``owners``, its own.

    Raise an error if fields that share rows have different sizes or dimensions. ``name`` is for error messages.
    """
    n = len(field_sizes)
    if not owners:
        return tuple(range(n))
    valid = isinstance(owners, list | tuple) and len(owners) == n
    valid = valid and all(type(owner) is int and 0 <= owner < n for owner in owners)
    if not valid or any(owners[owner] != owner for owner in owners):
        raise Fm2Error(
            f"{name}: owners are {owners}; expected, for each of {n} fields, the index of the field that owns its rows"
        )
    for field, owner in enumerate(owners):
        for what, values in (("features", field_sizes), ("dimensions", dims)):
            if values[field] != values[owner]:
                raise Fm2Error(
                    f"{name}: field {field} shares the embeddings of field {owner}, but has {values[field]} {what}, "
                    f"not {values[owner]}; both must be equal"
                )
    return tuple(owners)


# How the weights of new tables are made, if they are stored elsewhere; see fm2.distributed.
make_weight: ContextVar[Callable[[FlatEmbedding, int], nn.Parameter] | None] = ContextVar("make_weight", default=None)


class FlatEmbedding(nn.Module):
    """A lookup table with a row of weights for every feature of every field; ids are local to their field.

    All rows are stored in one flat buffer. Row ``r`` of field ``f`` is ``weight[offsets[f] + r * dims[f]:][:dims[f]]``,
    and ``forward`` returns it in columns ``starts[f]:starts[f] + dims[f]``. With ``sparse=True`` the gradient is a
    sparse tensor of the touched rows, each of them once, for torch's sparse optimizers (Adagrad, SparseAdam, SGD); the
    attribute can be changed at any time. With ``keep_zeros=True`` weights that are zero get no gradient. The initial
    weights are zero, or normally distributed with standard deviation ``scale``. A ``linear`` table has the features'
    weights in the linear part, whose L2 penalty has a scale of its own.

    ``owners`` has, for each field, the index of the field whose rows it uses; without it, each field has its own. A
    multi-valued field contributes the weighted sum of its features' rows.

    >>> table = FlatEmbedding([3, 2], dims=[1, 2])
    >>> table.weight.data = torch.arange(7.0)
    >>> table(torch.tensor([[2, 1], [0, 0]])).tolist()
    [[2.0, 5.0, 6.0], [0.0, 3.0, 4.0]]
    >>> from fm2.models.rows import TensorRows, tensor_lists
    >>> lists = {1: tensor_lists([[0, 1], []], [[0.5, 0.5], []])}
    >>> table(TensorRows(torch.tensor([[2, 0], [0, 0]]), lists)).tolist()
    [[2.0, 4.0, 5.0], [0.0, 0.0, 0.0]]
    """

    _offset: Tensor
    _dim: Tensor
    _start: Tensor
    _group_offset: Tensor
    _group_dim: Tensor
    _unit_field: Tensor
    _unit_position: Tensor

    def __init__(
        self,
        field_sizes: Sequence[int],
        dims: int | Sequence[int],
        sparse: bool = False,
        *,
        scale: float = 0.0,
        seed: Seed = 0,
        owners: Sequence[int] | None = None,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.field_sizes = tuple(field_sizes)
        if not self.field_sizes or min(self.field_sizes) < 1:
            raise Fm2Error(
                f"FlatEmbedding: the field sizes are {list(field_sizes)}; pass at least one, and all at least 1"
            )
        self.dims = per_field(dims, len(self.field_sizes), "FlatEmbedding")
        self.sparse = sparse
        self.linear = linear
        self.keep_zeros = False
        self.owners = check_owners(owners, self.field_sizes, self.dims, "FlatEmbedding")
        groups = list(dict.fromkeys(self.owners))
        floats = [self.field_sizes[group] * self.dims[group] for group in groups]
        *group_offsets, n_floats = accumulate(floats, initial=0)
        offset_of = dict(zip(groups, group_offsets, strict=True))
        self.offsets = [offset_of[owner] for owner in self.owners]
        *self.starts, self.width = accumulate(self.dims, initial=0)
        make = make_weight.get()
        # Memory from np.zeros is not committed until it is written.
        self.weight = make(self, n_floats) if make else nn.Parameter(torch.from_numpy(np.zeros(n_floats, np.float32)))
        if scale:
            fill_normal(self.weight, scale, generator(seed))

        # Rows are gathered in units of the largest length that divides all dimensions: whole rows if these are equal.
        self.unit = math.gcd(*self.dims)
        units = [dim // self.unit for dim in self.dims]
        self._constant("_offset", self.offsets)
        self._constant("_dim", self.dims)
        self._constant("_start", self.starts)
        self._constant("_group_offset", group_offsets)
        self._constant("_group_dim", [self.dims[group] for group in groups])
        self._constant("_unit_field", [field for field, count in enumerate(units) for _ in range(count)])
        self._constant("_unit_position", [position for count in units for position in range(count)])

    def _constant(self, name: str, values: Sequence[int]) -> None:
        self.register_buffer(name, torch.tensor(values), persistent=False)

    def forward(self, rows: Rows) -> Tensor:
        """Gather the rows of ids [rows, fields] and concatenate those of each row: [rows, sum of dims]."""
        if isinstance(rows, Tensor):
            gathered: Tensor = _Gather.apply(self.weight, self.begins(rows), self)  # type: ignore[no-untyped-call]
        else:
            gathered = _Pool.apply(self.weight, self.values(rows), self)  # type: ignore[no-untyped-call]
        return gathered

    def values(self, rows: TensorRows) -> TableValues:
        """Return all values of rows: those of multi-valued fields, and one per row of the others."""
        count = len(rows)
        ids = rows.ids.long().clone()
        ids[:, list(rows.lists)] = 0
        begins = self.begins(ids)
        parts = []
        for field in range(len(self.field_sizes)):
            if field in rows.lists:
                lists = rows.lists[field]
                self._check_ids(field, lists.id)
                begin = lists.id.long() * self.dims[field] + self.offsets[field]
                row, weight = lists.row, lists.weight.to(self.weight)
            else:
                begin = begins[:, field]
                row = torch.arange(count, device=begin.device)
                weight = torch.ones(count, dtype=self.weight.dtype, device=begin.device)
            parts.append((begin, torch.full_like(begin, field), row, weight))
        begin, field_of, row, weight = (torch.cat(columns) for columns in zip(*parts, strict=True))
        units = self._dim[field_of] // self.unit
        value = torch.arange(len(begin), device=begin.device).repeat_interleave(units)
        position = torch.arange(len(value), device=begin.device) - (units.cumsum(0) - units)[value]
        target = (row * self.width + self._start[field_of])[value] // self.unit + position
        return TableValues(count, begin, value, position, target, weight[value, None])

    def begins(self, ids: Tensor) -> Tensor:
        """Return the position in ``weight`` at which each feature's row begins, [rows, fields].

        Raise an error if ids are not integers, or if a field has no feature of that id.
        """
        if ids.ndim != 2 or ids.shape[1] != len(self.field_sizes):
            raise Fm2Error(f"FlatEmbedding: ids have shape {list(ids.shape)}; expected [rows, {len(self.field_sizes)}]")
        _check_integers(ids)
        if not torch.compiler.is_exporting() and len(ids):  # an exported graph has no ids to check
            for field, (lowest, highest) in enumerate(zip(ids.amin(0).tolist(), ids.amax(0).tolist(), strict=True)):
                self._check_range(field, lowest, highest)
        return ids.long() * self._dim + self._offset

    def _check_ids(self, field: int, ids: Tensor) -> None:
        _check_integers(ids)
        if len(ids):
            self._check_range(field, int(ids.min()), int(ids.max()))

    def _check_range(self, field: int, lowest: int, highest: int) -> None:
        size = self.field_sizes[field]
        if lowest < 0 or highest >= size:
            wrong = lowest if lowest < 0 else highest
            raise Fm2Error(f"FlatEmbedding: field {field} has id {wrong}; ids must be between 0 and {size - 1}")

    def units(self, begins: Tensor) -> Tensor:
        """Return the indices, in the buffer, of the units of the rows that begin at ``begins``."""
        return (begins // self.unit)[:, self._unit_field] + self._unit_position

    def rows(self, field: int) -> Tensor:
        """Return the rows of a field's features, [features, dimension], as a view of the weights.

        >>> FlatEmbedding([3, 2], dims=[1, 2]).rows(1).shape
        torch.Size([2, 2])
        """
        size, dim = self.field_sizes[field], self.dims[field]
        return self.weight.detach()[self.offsets[field] :][: size * dim].view(size, dim)

    def gradient(self, begins: Tensor) -> TableGradient:
        """Return an empty gradient for the rows that a batch touches."""
        if not self.sparse:
            return TableGradient(torch.zeros_like(self.weight), begins, None, self.weight.shape)
        return TableGradient.sparse(self.weight, begins, self._group_offset, self._group_dim)

    def per_feature(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a number per feature of this table from one per feature of every field: shared features have the sum.

        >>> FlatEmbedding([2, 3, 2], 1, owners=[0, 1, 0]).per_feature(np.arange(7)).tolist()
        [5, 7, 2, 3, 4]
        """
        by_field = np.split(values, np.cumsum(self.field_sizes)[:-1])
        sums: dict[int, NDArray[Any]] = {}
        for owner, own in zip(self.owners, by_field, strict=True):
            sums[owner] = sums[owner] + own if owner in sums else own
        return np.concatenate(list(sums.values()))

    def per_weight(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a number per weight of this table from one per feature."""
        groups = list(dict.fromkeys(self.owners))
        return np.repeat(values, np.repeat([self.dims[g] for g in groups], [self.field_sizes[g] for g in groups]))

    def extra_repr(self) -> str:
        features = sum(self.field_sizes[group] for group in set(self.owners))
        return f"{features} features of {len(self.field_sizes)} fields, width {self.width}"


def _check_integers(ids: Tensor) -> None:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise Fm2Error(f"FlatEmbedding: ids have type {ids.dtype}; expected integers, such as torch.int64")


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, begins: Tensor, table: FlatEmbedding) -> Tensor:
        ctx.table, ctx.begins = table, begins
        units = weight.view(-1, table.unit).index_select(0, table.units(begins).view(-1))
        return units.view(begins.shape[0], table.width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        table = ctx.table
        gradient = table.gradient(ctx.begins)
        gradient.add(table.units(gradient.begins), grad.reshape(-1, table.unit))
        if table.keep_zeros:
            gradient.clear_zeros_of(table.weight.detach())
        return gradient.tensor(), None, None


@dataclass
class TableValues:
    """Values of a batch of ``rows``, in units as :class:`FlatEmbedding` gathers them.

    ``begin`` is where the row of a value begins. Each unit has its ``value``, its ``position`` in the value's row, the
    ``target`` to which it is added in the gathered rows, and the value's ``weight``.
    """

    rows: int
    begin: Tensor
    value: Tensor
    position: Tensor
    target: Tensor
    weight: Tensor

    def units(self, begin: Tensor, unit: int) -> Tensor:
        """Return the indices of the units of rows that begin at ``begin``."""
        return begin[self.value] // unit + self.position


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, values: TableValues, table: FlatEmbedding) -> Tensor:
        ctx.table, ctx.values = table, values
        units = weight.view(-1, table.unit).index_select(0, values.units(values.begin, table.unit))
        pooled = weight.new_zeros(values.rows * table.width // table.unit, table.unit)
        return pooled.index_add_(0, values.target, units * values.weight).view(values.rows, table.width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        table, values = ctx.table, ctx.values
        gradient = table.gradient(values.begin)
        units = grad.reshape(-1, table.unit).index_select(0, values.target) * values.weight
        gradient.add(values.units(gradient.begins, table.unit), units)
        if table.keep_zeros:
            gradient.clear_zeros_of(table.weight.detach())
        return gradient.tensor(), None, None
