"""The gradient of a flat table: dense, or sparse with only the touched rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
    def dense(cls, weight: Tensor, begins: Tensor) -> TableGradient:
        """Return a zero gradient of the table's size."""
        return cls(torch.zeros_like(weight), begins, None, weight.shape)

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
