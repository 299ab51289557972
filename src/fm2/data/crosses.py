"""The vocabularies of crosses: another pass over the rows, once the ids of all other fields are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.counting import Assign, FieldIds, build_field, row_counts
from fm2.data.derived import DerivedEncoder
from fm2.data.log_reader import StoredRows
from fm2.data.numbers import NumberCodes
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Schema

MOST_COMBINATIONS = 1 << 24  # that are counted at the same time, in about 1 GB; others take further passes

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]


def build_crosses(
    schema: Schema,
    fields: Sequence[FieldIds],
    numbers: NumberCodes,
    scratch: StoredRows,
    assign: Assign,
    known: Sequence[Vocabulary],
    *,
    all_splits: bool,
    threads: int,
) -> tuple[list[FieldIds], DerivedEncoder]:
    """Count the combinations of the training rows, or of ``all_splits``, and build the vocabularies of the crosses.

    Equally frequent combinations are ordered by the ids of their parts. ``fields`` are those of all other fields; the
    result has the crosses as well.
    """
    encoder = DerivedEncoder(schema, [field.vocabulary for field in fields])
    if not encoder.crosses:
        return list(fields), encoder
    for index in encoder.crosses:  # hashed ones need no vocabulary
        encoder.set_vocabulary(index, Vocabulary.of([]))
    hash_counts = {
        index: np.zeros(1 + (1 << schema.fields[index].hash_bits), np.int64)
        for index in encoder.crosses
        if schema.fields[index].hash_bits
    }
    tallies = {
        index: _Tally(schema, fields, index, known[index] if known else None)
        for index in encoder.crosses
        if index not in hash_counts
    }
    most = MOST_COMBINATIONS // max(len(tallies), 1)
    counters = {index: _native.CombinationCounter(list(schema.parts[index]), most) for index in tallies}
    first = True
    while first or counters:
        for block in scratch.blocks(encoder.parts):
            counted = row_counts(*assign(block), all_splits)
            ids = encoder.part_ids(block, fields, numbers, threads)
            _native.count_combinations(list(counters.values()), ids, counted, threads)
            if first and hash_counts:
                encoder.encode(ids, block.rows, encoder.part_numbers(block), {}, threads)
                for index, counts in hash_counts.items():
                    counts += np.bincount(ids[:, index], counted, minlength=len(counts)).astype(np.int64)
        for index, counter in counters.items():
            tallies[index].add(*counter.take())
        counters = {index: counter for index, counter in counters.items() if counter.next()}
        first = False
    built = list(fields)
    for index in encoder.crosses:
        if index in hash_counts:
            built[index] = build_field(schema.fields[index], hash_counts[index][1:])
        else:
            built[index] = tallies[index].build()
            encoder.set_vocabulary(index, built[index].vocabulary)
        built[index] = dataclasses.replace(built[index], ids=np.zeros(1, np.int32))  # the log has one code for all rows
    return built, encoder


class _Tally:
    """The combinations of a cross that are frequent enough, or known; those of one pass after the other."""

    def __init__(self, schema: Schema, fields: Sequence[FieldIds], index: int, known: Vocabulary | None) -> None:
        self._field = schema.fields[index]
        self._known = known
        self._dropped = 0
        self._kept: list[tuple[Ids, Ints]] = []
        vocabularies = [fields[part].vocabulary for part in schema.parts[index]]
        self._values: list[Any] = [None if part.hashed else (part.data, part.ends) for part in vocabularies]

    def add(self, flat_ids: Ids, counts: Ints) -> None:
        """Add counted combinations; ``flat_ids`` has the ids of the parts, one combination after the other."""
        ids = flat_ids.reshape(len(counts), len(self._values))
        kept = counts >= self._field.min_count
        if self._known is not None:
            rare = np.flatnonzero(~kept)
            kept[rare] = self._texts(ids[rare]).ids_in(self._known)[1:] > 0
        self._dropped += int(np.count_nonzero(~kept))
        self._kept.append((ids[kept], counts[kept]))

    def build(self) -> FieldIds:
        """Return the vocabulary."""
        ids, counts = (np.concatenate(arrays) for arrays in zip(*self._kept, strict=True))
        order = np.lexsort(ids.T[::-1])
        ids, counts = ids[order], counts[order]
        built = build_field(self._field, counts, lambda codes: self._texts(ids[codes]), self._known)
        return dataclasses.replace(built, dropped=self._dropped)

    def _texts(self, ids: Ids) -> Vocabulary:
        data, ends = _native.combination_texts(self._values, np.ascontiguousarray(ids))
        empty = Vocabulary.of([])
        return dataclasses.replace(empty, data=np.frombuffer(data, np.uint8), ends=ends)
