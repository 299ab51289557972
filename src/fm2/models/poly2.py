"""LR and Poly2: a weight per feature and, in Poly2, one per pair of features in a hash table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fm2.errors import Fm2Error
from fm2.models.base import GatheredModel, Model
from fm2.models.embedding import FlatEmbedding
from fm2.models.hashing import feature_keys, pair_slots
from fm2.models.initial import Seed
from fm2.models.rows import Rows, TensorRows


class LR(GatheredModel):
    """Logistic regression (equation 2 of the paper): b + Σ_i w_i, with a weight per feature; all start at zero.

    >>> model = LR([10, 20])
    >>> model.n_parameters, model.flops()
    (30, 4)
    """

    def __init__(self, field_sizes: Sequence[int], seed: Seed = 0) -> None:
        super().__init__({"field_sizes": list(field_sizes)})
        self.linear = FlatEmbedding(field_sizes, 1)

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        """Return the logits [rows] from the gathered weights [rows, fields]."""
        assert linear is not None
        return linear.sum(1) + self.bias


class Poly2(Model):
    """A degree-2 polynomial (equation 3 of the paper): a weight per feature and per pair of features, initially zero.

    The table ``pairs`` has 2^hash_bits weights and no fields; ``fm2.models.hashing`` maps a pair to its weight.
    Values of the same multi-valued field do not form pairs.

    >>> model = Poly2([10, 20, 30], hash_bits=8)
    >>> model.n_parameters == 60 + 256, model.flops()
    (True, 12)
    """

    def __init__(self, field_sizes: Sequence[int], hash_bits: int = 22, seed: Seed = 0) -> None:
        if not 1 <= hash_bits <= 30:
            raise Fm2Error(f"poly2: hash_bits must be between 1 and 30, got {hash_bits}")
        super().__init__({"field_sizes": list(field_sizes), "hash_bits": hash_bits})
        self.hash_bits = hash_bits
        self.linear = FlatEmbedding(field_sizes, 1)
        self.pairs = FlatEmbedding([1 << hash_bits], 1)

    def forward(self, rows: Rows) -> Tensor:
        linear: Tensor = self.linear(rows).sum(1) + self.bias
        if not isinstance(rows, Tensor):
            return linear + self._value_pairs(rows)
        pairs: Tensor = _Pairs.apply(  # type: ignore[no-untyped-call]
            self.pairs.weight, feature_keys(rows), self.pairs, self.hash_bits
        )
        return linear + pairs

    def _value_pairs(self, rows: TensorRows) -> Tensor:
        """Return the pair terms of rows with multi-valued fields: one for every pair of values of different fields."""
        row, field, id, weight = _sorted_values(rows)
        row_end = torch.searchsorted(row, row, right=True)
        place = row * rows.ids.shape[1] + field
        field_end = torch.searchsorted(place, place, right=True)
        # A value's partners are those of its row's later fields: [field_end, row_end).
        partners = row_end - field_end
        first = torch.repeat_interleave(partners)
        second = torch.arange(len(first), device=row.device) + (field_end - partners.cumsum(0) + partners)[first]
        keys = feature_keys(id, field)
        slots = pair_slots(keys[first], keys[second], self.hash_bits)
        weight = weight.to(self.bias)
        terms: Tensor = self.pairs(slots[:, None])[:, 0] * weight[first] * weight[second]
        return terms.new_zeros(len(rows)).index_add(0, row[first], terms)


def _sorted_values(rows: TensorRows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the row, field, id and weight of every value, in the order of rows, then fields."""
    every_row = torch.arange(len(rows), device=rows.ids.device)
    values = []
    for field in range(rows.ids.shape[1]):
        if field in rows.lists:
            lists = rows.lists[field]
            row, id, weight = lists.row, lists.id, lists.weight
        else:
            row, id, weight = every_row, rows.ids[:, field], torch.ones(len(rows), device=every_row.device)
        values.append((row, torch.full_like(row, field), id.long(), weight))
    row, field_of, id, weight = (torch.cat(columns) for columns in zip(*values, strict=True))
    order = torch.argsort(row, stable=True)
    return row[order], field_of[order], id[order], weight[order]


class _Pairs(torch.autograd.Function):
    """Pair terms, field by field. Only the keys of the features are kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, keys: Tensor, table: FlatEmbedding, hash_bits: int) -> Tensor:
        ctx.save_for_backward(keys)
        ctx.table, ctx.hash_bits = table, hash_bits
        terms = weight.new_zeros(len(keys))
        for field in range(keys.shape[1] - 1):
            terms += weight[pair_slots(keys[:, field, None], keys[:, field + 1 :], hash_bits)].sum(1)
        return terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (keys,) = ctx.saved_tensors
        first, second = torch.triu_indices(keys.shape[1], keys.shape[1], 1, device=keys.device)
        slots = pair_slots(keys[:, first], keys[:, second], ctx.hash_bits)
        gradient = ctx.table.gradient(slots)
        gradient.add(gradient.begins, g[:, None].expand_as(slots).reshape(-1, 1))
        return gradient.tensor(), None, None, None
