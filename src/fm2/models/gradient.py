"""The gradient of a flat table: a dense one, or a sparse one of the touched rows alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class TableGradient:
    """Sums what a batch adds to the rows of a table; ``begins`` says where in ``values`` each feature's row begins.

    A sparse one has every touched row once: rows are found to be equal here, for torch would have to compare every
    single float of a flat buffer.
    """

    values: Tensor
    begins: Tensor
    elements: Tensor | None
    shape: torch.Size

    @classmethod
    def dense(cls, weight: Tensor, begins: Tensor) -> TableGradient:
        """Make a gradient as large as the table."""
        return cls(torch.zeros_like(weight), begins, None, weight.shape)

    @classmethod
    def sparse(cls, weight: Tensor, begins: Tensor, offset: Tensor, dim: Tensor) -> TableGradient:
        """Make a gradient as large as the touched rows; a field's rows begin at its ``offset``, ``dim`` floats each."""
        touched, which = torch.unique(begins, return_inverse=True)
        lengths = dim[torch.bucketize(touched, offset, right=True) - 1]
        packed = lengths.cumsum(0) - lengths
        elements = (touched - packed).repeat_interleave(lengths)
        elements += torch.arange(len(elements), device=elements.device)
        return cls(weight.new_zeros(len(elements)), packed[which], elements, weight.shape)

    def add(self, units: Tensor, values: Tensor) -> None:
        """Add a row of ``values`` to each of these units; a unit is as many floats as such a row has."""
        self.values.view(-1, values.shape[1]).index_add_(0, units.reshape(-1), values)

    def tensor(self) -> Tensor:
        """Give the gradient as autograd wants it."""
        if self.elements is None:
            return self.values
        indices = self.elements[None]
        return torch.sparse_coo_tensor(indices, self.values, self.shape, is_coalesced=True, check_invariants=False)
