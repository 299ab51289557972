"""Encoded rows as tensors, for models that run in torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fm2.data.rows import EncodedRows


@dataclass(frozen=True)
class TensorLists:
    """The values of a multi-valued field in a batch: the ``row``, ``id`` and ``weight`` of each.

    Pooling is part of the weights: the field contributes the weighted sum of its features.
    """

    row: Tensor
    id: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class TensorRows:
    """Rows of ids [rows, fields] as tensors; those of the fields in ``lists`` have no meaning.

    >>> rows = TensorRows(torch.tensor([[3, 0], [4, 0]]), {1: tensor_lists([[5, 6], []])})
    >>> len(rows), rows.lists[1].row.tolist()
    (2, [0, 0])
    """

    ids: Tensor
    lists: Mapping[int, TensorLists] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def replace_weights(self, weights: Mapping[int, Tensor]) -> TensorRows:
        """Return the same rows with other weights of the values in these fields."""
        lists = {index: TensorLists(self.lists[index].row, self.lists[index].id, new) for index, new in weights.items()}
        return TensorRows(self.ids, {**self.lists, **lists})


Rows = Tensor | TensorRows


def tensor_lists(ids: list[list[int]], weights: list[list[float]] | None = None) -> TensorLists:
    """Create the lists of a batch from one list of ids, and optionally of weights, per row."""
    values = [(row, id) for row, list_ids in enumerate(ids) for id in list_ids]
    flat = [1.0] * len(values) if weights is None else [weight for row in weights for weight in row]
    pairs = torch.tensor(values, dtype=torch.int64).view(-1, 2)
    return TensorLists(pairs[:, 0], pairs[:, 1], torch.tensor(flat))


def to_tensors(rows: EncodedRows | NDArray[np.int32], device: torch.device | str = "cpu") -> Rows:
    """Return encoded rows as tensors: a plain tensor of ids if no field is multi-valued.

    >>> to_tensors(np.array([[1, 2]], np.int32)).tolist()
    [[1, 2]]
    """
    encoded = EncodedRows.of(rows)
    ids = torch.from_numpy(np.array(encoded.ids, np.int32)).to(device)
    if not encoded.lists:
        return ids
    lists = {}
    for index, table in encoded.lists.items():
        own = table.take(encoded.ids[:, index])
        row = torch.repeat_interleave(torch.from_numpy(own.sizes))
        arrays = row, torch.from_numpy(own.ids), torch.from_numpy(own.value_weights())
        lists[index] = TensorLists(*(array.to(device) for array in arrays))
    return TensorRows(ids, lists)
