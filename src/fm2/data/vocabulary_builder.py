"""Build vocabularies from the counts of a log's values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.counting import Boundaries
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Field, Schema


@dataclass(frozen=True)
class FieldIds:
    """The vocabulary of a field, the id of each code, and the number of counted values that became unknown."""

    vocabulary: Vocabulary
    ids: NDArray[np.int32]
    dropped: int


def build_vocabularies(
    schema: Schema,
    counts: Sequence[NDArray[np.int64]],
    boundaries: Boundaries,
    collector: _native.Collector,
    known: Sequence[Vocabulary],
) -> list[FieldIds]:
    """Assign ids to the values of each field that are frequent enough, or in its ``known`` vocabulary."""
    result = []
    for index, field in enumerate(schema.fields):
        values = _FieldValues(index, boundaries.get(index), collector)
        vocabulary, ids = _build(field, counts[index], values, known[index] if known else None)
        dropped = int(np.count_nonzero((counts[index] > 0) & (ids == 0)))
        result.append(FieldIds(vocabulary, ids, dropped))
    return result


@dataclass(frozen=True)
class _FieldValues:
    index: int
    boundaries: NDArray[np.float32] | None
    collector: _native.Collector

    def of(self, codes: NDArray[np.int64]) -> Vocabulary:
        """Return the values of codes as a vocabulary without counts."""
        if self.boundaries is not None:
            missing = len(self.boundaries) + 1
            texts = ["" if code == missing else str(code) for code in codes.tolist()]
            return dataclasses.replace(Vocabulary.of(texts), boundaries=self.boundaries)
        data, ends = self.collector.values(self.index, codes)
        empty = Vocabulary.of([])
        return dataclasses.replace(empty, data=np.frombuffer(data, np.uint8), ends=np.array(ends, np.uint64))


def _build(
    field: Field, counts: NDArray[np.int64], values: _FieldValues, known: Vocabulary | None
) -> tuple[Vocabulary, NDArray[np.int32]]:
    if field.hash_bits:
        hashed = dataclasses.replace(Vocabulary.of([]), counts=counts, hashed=len(counts))
        return hashed, np.arange(1, len(counts) + 1, dtype=np.int32)
    kept = counts >= field.min_count
    if known is not None:
        rare = np.flatnonzero(~kept)
        kept[rare] = values.of(rare).ids_in(known)[1:] > 0
    by_frequency = np.argsort(-counts, kind="stable")
    codes = by_frequency[kept[by_frequency]]
    ids = np.zeros(len(counts), np.int32)
    ids[codes] = np.arange(1, len(codes) + 1)
    vocabulary = dataclasses.replace(values.of(codes), counts=counts[codes])
    return (vocabulary if known is None else vocabulary.with_values_of(known, keep_counts=False)), ids
