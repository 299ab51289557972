"""Plans: how a compiled model is scored, and what its file stores for that.

``native/include/fm2/plans.h`` documents the kinds of plans and the layout of their feature rows. The plans of FwFM,
FvFM and FmFM are in :mod:`fm2.engine.matrix_plans`, those of networks in :mod:`fm2.engine.network_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.compression.weights import Floats, Weights
from fm2.engine.model_file import Bytes, align
from fm2.schema import Field

Dtype = Literal["f32", "f16", "i8"]
DTYPES: dict[Dtype, int] = {"f32": 0, "f16": 1, "i8": 2}
FIELD_MATRICES, SUMS, FIELD_AWARE, NETWORK = 0, 1, 2, 3  # kinds of plans
DEFAULT_VALUES = 4.0  # of a list, if nothing is known about its length
LANES = 8  # kernels read eight numbers at a time
FEATURES_PER_STEP = 1 << 16

Rows = tuple[Floats | None, Floats | None, Floats]
Features = Callable[[int, slice], tuple[Floats, Floats]]


@dataclass(frozen=True)
class RowBlock:
    """The feature rows of consecutive ids of one field.

    ``compute`` returns the first part, the second part and the linear weights of a slice of these features.
    """

    count: int
    first: int  # numbers in the first part
    second: int  # numbers in the second part
    compute: Callable[[slice], Rows]


@dataclass(frozen=True)
class Plan:
    """One way to score a model: the sections of numbers it stores, and its feature rows."""

    title: str
    dtype: Dtype
    sections: Mapping[str, NDArray[Any]]
    blocks: Sequence[RowBlock]

    @property
    def row_bytes(self) -> int:
        """The bytes of all feature rows; each block starts at a cache line."""
        return sum(align(block.count * self._stride(block)) for block in self.blocks)

    def write_rows(self, out: Bytes) -> float:
        """Write all feature rows and return the largest rounding error of a number."""
        at, error = 0, 0.0
        for block in self.blocks:
            for begin in range(0, block.count, FEATURES_PER_STEP):
                step = slice(begin, min(begin + FEATURES_PER_STEP, block.count))
                first, second, linear = map(_as_float32, block.compute(step))
                assert linear is not None
                size = len(linear) * self._stride(block)
                rounding = _native.pack_rows(DTYPES[self.dtype], first, second, linear, out[at : at + size])
                error = max(error, rounding)
                at += size
            at = align(at)
        return error

    def _stride(self, block: RowBlock) -> int:
        return _native.row_bytes(DTYPES[self.dtype], block.first, block.second)


def _as_float32(part: Floats | None) -> Floats | None:
    return None if part is None else np.ascontiguousarray(part, np.float32)


def lookups(weights: Weights) -> list[float]:
    """Return the average number of features of a row in each field, estimated from how often features occur.

    A run has no averages, but the values of a single-valued field occur at most once per row.
    """
    fields = weights.schema.fields
    totals = [int(vocabulary.counts.sum()) for vocabulary in weights.vocabularies]
    rows = max((total for field, total in zip(fields, totals, strict=True) if not field.is_list), default=0)

    def average(field: Field, total: int) -> float:
        if not field.multivalued:
            return 2.0 if field.transform == "interpolate" else 1.0
        found = total / rows if rows and total else DEFAULT_VALUES
        return max(min(found, field.max_values or found), 1.0)

    return [average(field, total) for field, total in zip(fields, totals, strict=True)]


def common_sections(
    weights: Weights, kind: int, dtype: Dtype, *, dim: int = 0, hash_bits: int = 0, diagonal: bool = False
) -> dict[str, NDArray[Any]]:
    """Return the sections that every plan has."""
    return {
        "plan": np.array([kind, DTYPES[dtype], len(weights.sizes), dim, hash_bits, diagonal], np.int64),
        "sizes": np.array(weights.sizes, np.int32),
        "lists": np.array([field.is_list for field in weights.schema.fields], np.uint8),
        "bias": np.array([weights.bias], np.float32),
    }


def sums(weights: Weights, dtype: Dtype) -> Plan:
    """Plan LR, Poly2 or FM: sums of weights and, for FM, the square of the sum of all embeddings."""

    def features(field: int, ids: slice) -> tuple[Floats, Floats]:
        return weights.embeddings[field][ids], weights.linear[field][ids]

    title = "sum of embeddings" if len(weights.signs) else "sums"
    return pair_products(weights, features, weights.signs, dtype, title)


def pair_products(weights: Weights, features: Features, signs: Floats, dtype: Dtype, title: str) -> Plan:
    """Plan the sum of the linear weights and of the signed inner products of all pairs of vectors.

    The products are half the signed square of the vectors' sum minus half their own squares. These are folded into the
    linear weights of single-valued fields; those of list fields depend on all values of a list, so the kernel subtracts
    them. ``features`` returns the vectors and linear weights of a slice of a field's features.
    """
    rank = len(signs)
    halves = signs * np.float32(0.5)
    hash_bits = 0 if weights.pairs is None else int(weights.config["hash_bits"])

    def block(field: int, size: int) -> RowBlock:
        def compute(ids: slice) -> Rows:
            vectors, linear = features(field, ids)
            own = 0 if weights.schema.fields[field].is_list else np.square(vectors) @ halves
            return vectors, None, linear - own

        return RowBlock(size, rank, 0, compute)

    sections = {
        **common_sections(weights, SUMS, dtype, dim=rank, hash_bits=hash_bits),
        "signs": np.pad(halves, (0, align(rank, LANES) - rank)),
    }
    if weights.pairs is not None:
        sections["pairs"] = weights.pairs
    return Plan(title, dtype, sections, [block(field, size) for field, size in enumerate(weights.sizes)])


def field_aware(weights: Weights, dtype: Dtype) -> Plan:
    """Plan FFM: the inner product of the two vectors that the features of a pair have for each other's field."""

    def block(table: Floats, linear: Floats) -> RowBlock:
        return RowBlock(len(linear), 0, table.shape[1], lambda ids: (None, table[ids], linear[ids]))

    sections = common_sections(weights, FIELD_AWARE, dtype, dim=int(weights.config["dim"]))
    blocks = [block(table, linear) for table, linear in zip(weights.embeddings, weights.linear, strict=True)]
    return Plan("pairs of vectors", dtype, sections, blocks)
