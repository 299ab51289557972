"""Sparse tables: one flat buffer of floats for all fields, so that each field can have its own dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error
from fm2.models.initial import Seed, fill_normal, generator


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
        """Return a zero gradient of the touched rows; a field's rows begin at its ``offset``, ``dim`` floats each."""
        touched, index = torch.unique(begins, return_inverse=True)
        lengths = dim[torch.bucketize(touched, offset, right=True) - 1]
        packed = lengths.cumsum(0) - lengths
        elements = (touched - packed).repeat_interleave(lengths)
        elements += torch.arange(len(elements), device=elements.device)
        return cls(weight.new_zeros(len(elements)), packed[index], elements, weight.shape)

    def add(self, units: Tensor, values: Tensor) -> None:
        """Add each row of ``values`` to the unit with that index; a unit is as long as a row of ``values``."""
        self.values.view(-1, values.shape[1]).index_add_(0, units.reshape(-1), values)

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


class FlatEmbedding(nn.Module):
    """A lookup table with a row of weights for every feature of every field; ids are local to their field.

    All rows are stored in one flat buffer. Row ``r`` of field ``f`` is ``weight[offsets[f] + r * dims[f]:][:dims[f]]``,
    and ``forward`` returns it in columns ``starts[f]:starts[f] + dims[f]``. With ``sparse=True`` the gradient is a
    sparse tensor of the touched rows, each of them once, for torch's sparse optimizers (Adagrad, SparseAdam, SGD); the
    attribute can be changed at any time. The initial weights are zero, or normally distributed with standard deviation
    ``scale``.

    >>> table = FlatEmbedding([3, 2], dims=[1, 2])
    >>> table.weight.data = torch.arange(7.0)
    >>> table(torch.tensor([[2, 1], [0, 0]])).tolist()
    [[2.0, 5.0, 6.0], [0.0, 3.0, 4.0]]
    """

    _offset: Tensor
    _dim: Tensor
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
    ) -> None:
        super().__init__()
        self.field_sizes = tuple(field_sizes)
        if not self.field_sizes or min(self.field_sizes) < 1:
            raise Fm2Error(
                f"FlatEmbedding: the field sizes are {list(field_sizes)}; pass at least one, and all at least 1"
            )
        self.dims = per_field(dims, len(self.field_sizes), "FlatEmbedding")
        self.sparse = sparse
        floats = [size * dim for size, dim in zip(self.field_sizes, self.dims, strict=True)]
        *self.offsets, n_floats = accumulate(floats, initial=0)
        *self.starts, self.width = accumulate(self.dims, initial=0)
        # Memory from np.zeros is not committed until it is written.
        self.weight = nn.Parameter(torch.from_numpy(np.zeros(n_floats, np.float32)))
        if scale:
            fill_normal(self.weight, scale, generator(seed))

        # Rows are gathered in units of the largest length that divides all dimensions: whole rows if these are equal.
        self.unit = math.gcd(*self.dims)
        units = [dim // self.unit for dim in self.dims]
        self._constant("_offset", self.offsets)
        self._constant("_dim", self.dims)
        self._constant("_unit_field", [field for field, count in enumerate(units) for _ in range(count)])
        self._constant("_unit_position", [position for count in units for position in range(count)])

    def _constant(self, name: str, values: Sequence[int]) -> None:
        self.register_buffer(name, torch.tensor(values), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Gather the rows of ``ids`` [rows, fields] and concatenate those of each row: [rows, sum of dims]."""
        gathered: Tensor = _Gather.apply(self.weight, self.begins(ids), self)  # type: ignore[no-untyped-call]
        return gathered

    def begins(self, ids: Tensor) -> Tensor:
        """Return the position in ``weight`` at which each feature's row begins, [rows, fields].

        Raise an error if ids are not integers, or if a field has no feature of that id.
        """
        if ids.ndim != 2 or ids.shape[1] != len(self.field_sizes):
            raise Fm2Error(f"FlatEmbedding: ids have shape {list(ids.shape)}; expected [rows, {len(self.field_sizes)}]")
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise Fm2Error(f"FlatEmbedding: ids have type {ids.dtype}; expected integers, such as torch.int64")
        if not torch.compiler.is_exporting() and len(ids):  # an exported graph has no ids to check
            for field, (lowest, highest) in enumerate(zip(ids.amin(0).tolist(), ids.amax(0).tolist(), strict=True)):
                size = self.field_sizes[field]
                if lowest < 0 or highest >= size:
                    wrong = lowest if lowest < 0 else highest
                    raise Fm2Error(f"FlatEmbedding: field {field} has id {wrong}; ids must be between 0 and {size - 1}")
        return ids.long() * self._dim + self._offset

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
        return TableGradient.sparse(self.weight, begins, self._offset, self._dim)

    def extra_repr(self) -> str:
        return f"{sum(self.field_sizes)} features of {len(self.field_sizes)} fields, width {self.width}"


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, begins: Tensor, table: FlatEmbedding) -> Tensor:
        ctx.table, ctx.begins = table, begins
        units = weight.view(-1, table.unit).index_select(0, table.units(begins).view(-1))
        return units.view(begins.shape[0], table.width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        gradient = ctx.table.gradient(ctx.begins)
        gradient.add(ctx.table.units(gradient.begins), grad.reshape(-1, ctx.table.unit))
        return gradient.tensor(), None, None
