"""The sparse tables: one flat buffer of floats for all fields, so that fields may differ in dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error
from fm2.models.gradient import TableGradient
from fm2.models.initial import Seed, fill_normal, generator


def per_field(dims: int | Sequence[int], n_fields: int) -> tuple[int, ...]:
    """Give one dimension per field, from a list of them or from the one that all fields share.

    >>> per_field(4, 3), per_field([2, 3, 5], 3)
    ((4, 4, 4), (2, 3, 5))
    """
    every = (dims,) * n_fields if isinstance(dims, int) else tuple(dims)
    if len(every) != n_fields:
        raise Fm2Error(f"model: {len(every)} dimensions for {n_fields} fields; give one, or one per field")
    for field, dim in enumerate(every):
        if dim < 1:
            raise Fm2Error(f"model: field {field} has the dimension {dim}; it must be at least 1")
    return every


class FlatEmbedding(nn.Module):
    """A row of weights for every feature of every field, in one flat buffer; ids are local to their field.

    Row ``r`` of field ``f`` is ``weight[offsets[f] + r * dims[f]:][:dims[f]]``, and stands in the columns
    ``starts[f]:starts[f] + dims[f]`` of what ``forward`` gives. With ``sparse`` the gradient is a sparse tensor of
    the rows that were touched, each once, which torch's own sparse optimizers (Adagrad, SparseAdam, SGD) take on any
    device; the attribute may be set at any time. The first weights are zero, or normal numbers of standard deviation
    ``scale``.

    >>> table = FlatEmbedding([3, 2], dims=[1, 2])
    >>> table.weight.data = torch.arange(7.0)
    >>> table(torch.tensor([[2, 1], [0, 0]])).tolist()
    [[2.0, 5.0, 6.0], [0.0, 3.0, 4.0]]
    """

    _offset: Tensor
    _dim: Tensor
    _field: Tensor
    _within: Tensor

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
            raise Fm2Error(f"model: the field sizes are {list(field_sizes)}; there must be some, all at least 1")
        self.dims = per_field(dims, len(self.field_sizes))
        self.sparse = sparse
        *offsets, floats = accumulate((s * d for s, d in zip(self.field_sizes, self.dims, strict=True)), initial=0)
        *starts, self.width = accumulate(self.dims, initial=0)
        self.offsets, self.starts = tuple(offsets), tuple(starts)
        # Numpy's zeros take no memory until something else is written there.
        self.weight = nn.Parameter(torch.from_numpy(np.zeros(floats, np.float32)))
        if scale:
            fill_normal(self.weight, scale, generator(seed))

        # Weights move in units, as long as every row allows: whole rows where all dimensions are equal.
        self.unit = math.gcd(*self.dims)
        units = [dim // self.unit for dim in self.dims]
        self._constant("_offset", self.offsets)
        self._constant("_dim", self.dims)
        self._constant("_field", [field for field, count in enumerate(units) for _ in range(count)])
        self._constant("_within", [unit for count in units for unit in range(count)])

    def _constant(self, name: str, values: Sequence[int]) -> None:
        self.register_buffer(name, torch.tensor(values), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Gather the rows of ``ids`` [rows, fields] side by side: [rows, sum of dims]."""
        gathered: Tensor = _Gather.apply(self.weight, self.begins(ids), self)  # type: ignore[no-untyped-call]
        return gathered

    def begins(self, ids: Tensor) -> Tensor:
        """Say where in ``weight`` the row of every feature begins: [rows, fields], refusing ids that have no row."""
        if ids.ndim != 2 or ids.shape[1] != len(self.field_sizes):
            raise Fm2Error(f"model: ids of shape {list(ids.shape)} for {len(self.field_sizes)} fields")
        if not torch.compiler.is_exporting() and len(ids):  # a graph has no ids yet
            for field, (low, high) in enumerate(zip(ids.amin(0).tolist(), ids.amax(0).tolist(), strict=True)):
                if low < 0 or high >= self.field_sizes[field]:
                    found = low if low < 0 else high
                    raise Fm2Error(
                        f"model: field {field} has the id {found}; it has {self.field_sizes[field]} features"
                    )
        return ids.long() * self._dim + self._offset

    def units(self, begins: Tensor) -> Tensor:
        """Number the units, among all of the buffer, of the rows that begin at ``begins``."""
        return (begins // self.unit)[:, self._field] + self._within

    def rows(self, field: int) -> Tensor:
        """Give the rows of a field's features, [features, dimension]: a view of the weights.

        >>> FlatEmbedding([3, 2], dims=[1, 2]).rows(1).shape
        torch.Size([2, 2])
        """
        size, dim = self.field_sizes[field], self.dims[field]
        return self.weight.detach()[self.offsets[field] :][: size * dim].view(size, dim)

    def gradient(self, begins: Tensor) -> TableGradient:
        """Start the gradient of a batch: zero for every row that it touches."""
        if not self.sparse:
            return TableGradient.dense(self.weight, begins)
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
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        gradient = ctx.table.gradient(ctx.begins)
        gradient.add(ctx.table.units(gradient.begins), slope.reshape(-1, ctx.table.unit))
        return gradient.tensor(), None, None
