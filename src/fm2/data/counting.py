"""The second pass of prepare: count the values of the training rows, learn quantiles, and build vocabularies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.log_reader import Block, ScratchRows
from fm2.data.numbers import NumberCodes, learn_boundaries
from fm2.data.rows import native_lists
from fm2.data.splits import DROPPED, SPLITS, Assignment
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Field, Schema

Impressions = NDArray[np.uint32] | None  # of each row of a block; None: every row is one impression
Assign = Callable[[Block], tuple[Assignment, Impressions]]  # the split of each row, and what is left of its impressions

NUMBER_SAMPLE = 1_000_000


@dataclass(frozen=True)
class Counts:
    """Totals of each split, and for each field without boundaries how often each code occurs.

    The totals are rows, clicks and, if the schema has them, impressions, weight and weighted clicks.
    """

    totals: dict[str, NDArray[np.float64]]
    dropped: int  # rows that belong to no split
    codes: list[NDArray[np.int64]]

    def of_split(self, number: int) -> dict[str, int | float]:
        """Return the totals of one split."""
        return {
            name: float(sums[number]) if "weight" in name else int(sums[number]) for name, sums in self.totals.items()
        }


def count_rows(
    blocks: Iterable[Block],
    assign: Assign,
    schema: Schema,
    collector: _native.Collector,
    *,
    all_splits: bool,
    threads: int,
) -> Counts:
    """Count the rows of all splits, and the codes of the training rows, or of ``all_splits``.

    With impressions, a row counts as often as it has impressions.
    """
    totals: dict[str, NDArray[np.float64]] = {}
    dropped = 0
    owners = [schema.fields[owner] for owner in schema.owners]
    hashed = [owner.hash_bits if not owner.cross else 0 for owner in owners]
    codes = [np.zeros(1 << bits if bits else 0, np.int64) for bits in hashed]
    vocabulary_fields = [i for i, f in enumerate(owners) if not (f.hash_bits or f.has_boundaries or f.cross)]
    for block in blocks:
        split, impressions = assign(block)
        for name, values in _to_add(block, impressions).items():
            sums = np.bincount(split, values, minlength=len(SPLITS) + 1).astype(np.float64)
            totals[name] = totals.get(name, 0) + sums[: len(SPLITS)]
        dropped += int(np.count_nonzero(split == DROPPED))
        for index in vocabulary_fields:
            size = len(codes[index])
            if (needed := collector.size(index)) > size:
                codes[index] = np.pad(codes[index], (0, max(needed, size * 5 // 4) - size))
        lists = native_lists(block.lists, len(codes))
        _native.count_codes(block.codes, lists, row_counts(split, impressions, all_splits), codes, threads)
    for index in vocabulary_fields:
        codes[index] = codes[index][: collector.size(index)]
    return Counts(totals or {"rows": np.zeros(len(SPLITS))}, dropped, codes)


def _to_add(block: Block, impressions: Impressions) -> dict[str, NDArray[Any] | None]:
    """Return what each row adds to the totals of its split; None stands for 1."""
    values: dict[str, NDArray[Any] | None] = {"rows": None, "clicks": block.labels}
    if impressions is not None:
        values["impressions"] = impressions
    if block.weights is not None:
        values["weight"] = block.weights * (1.0 if impressions is None else impressions)
        values["weighted_clicks"] = block.weights * block.labels.astype(np.float64)
    return values


def learn_numbers(
    schema: Schema,
    known: Sequence[Vocabulary],
    scratch: ScratchRows,
    assign: Assign,
    training_rows: int,
) -> dict[int, NDArray[np.float32]]:
    """Return the boundaries of numeric fields: the ``known`` ones, or from up to a million spaced training rows.

    With impressions, ``training_rows`` is the number of impressions, and these are spaced.
    """
    fields = {index: field for index, field in enumerate(schema.fields) if field.has_boundaries}
    if known or not fields:
        return {index: known[index].boundaries for index in fields}
    step = -(-training_rows // NUMBER_SAMPLE)
    seen = 0
    samples: list[NDArray[np.float32]] = []
    for block in scratch.blocks(list(fields)):
        split, impressions = assign(block)
        training = np.flatnonzero(split == 0)
        if impressions is None:
            spaced, count = training[-seen % step :: step], len(training)
        else:
            ends = np.cumsum(impressions[training], dtype=np.int64)
            count = int(ends[-1]) if len(ends) else 0
            spaced = training[np.searchsorted(ends, np.arange(-seen % step, count, step), side="right")]
        samples.append(block.codes[:, spaced].view(np.float32))
        seen += count
    sample = np.concatenate(samples, axis=1)
    return {
        index: learn_boundaries(sample[i], field, -(-field.min_count // step))
        for i, (index, field) in enumerate(fields.items())
    }


def count_numbers(
    numbers: NumberCodes, scratch: ScratchRows, assign: Assign, *, all_splits: bool, threads: int
) -> dict[int, NDArray[np.int64]]:
    """Count how often each code of the fields with boundaries occurs."""
    counts = {index: np.zeros(len(numbers.texts(index)), np.int64) for index in numbers.fields}
    if not counts:
        return counts
    for block in scratch.blocks(list(numbers.fields)):
        counted = row_counts(*assign(block), all_splits)
        codes, lists = numbers.encode(dict(zip(numbers.fields, block.codes, strict=True)), threads)
        for index, count in counts.items():
            if index in lists:
                values, times = lists[index].ids, np.repeat(counted, lists[index].sizes)
            else:
                values, times = codes[index], counted
            count += np.bincount(values, times, minlength=len(count)).astype(np.int64)
    return counts


def row_counts(split: Assignment, impressions: Impressions, all_splits: bool) -> NDArray[Any]:
    """Return how often each row is counted."""
    counted = split != DROPPED if all_splits else split == 0
    return counted.astype(np.uint8) if impressions is None else np.where(counted, impressions, np.uint32(0))


@dataclass(frozen=True)
class FieldIds:
    """The vocabulary of a field, the id of each code, and the number of counted values that became unknown."""

    vocabulary: Vocabulary
    ids: NDArray[np.int32]
    dropped: int

    def with_counts(self, counts: NDArray[np.int64]) -> FieldIds:
        """Return the same ids with the counts of one of the fields that share them, by code."""
        if self.vocabulary.hashed:
            return dataclasses.replace(self, vocabulary=dataclasses.replace(self.vocabulary, counts=counts))
        kept = self.ids > 0
        counts_by_id = np.zeros_like(self.vocabulary.counts)
        counts_by_id[self.ids[kept] - 1] = counts[kept]
        vocabulary = dataclasses.replace(self.vocabulary, counts=counts_by_id)
        return FieldIds(vocabulary, self.ids, dropped=int(np.count_nonzero((counts > 0) & ~kept)))


def build_vocabularies(
    schema: Schema,
    counts: Sequence[NDArray[np.int64]],
    numbers: NumberCodes,
    collector: _native.Collector,
    known: Sequence[Vocabulary],
) -> list[FieldIds]:
    """Assign ids to the values of each field that are frequent enough, or in its ``known`` vocabulary.

    Fields that share a vocabulary have the same codes. The vocabulary has the values of its owner: a history often
    contains items because they were clicked, so counting it as well would reveal the labels of rare items. Only a
    missing value counts in all fields. The vocabularies of crosses stay empty.
    """

    def values_of(index: int, codes: NDArray[np.int64]) -> Vocabulary:
        """Return the values of codes as a vocabulary without counts."""
        if index in numbers.fields:
            texts = numbers.texts(index)
            known = Vocabulary.of([texts[code] for code in codes.tolist()])
            return dataclasses.replace(known, boundaries=numbers.boundaries[index])
        data, ends = collector.values(index, codes)
        empty = Vocabulary.of([])
        return dataclasses.replace(empty, data=np.frombuffer(data, np.uint8), ends=np.array(ends, np.uint64))

    built: dict[int, FieldIds] = {}
    for owner in set(schema.owners):
        if schema.fields[owner].cross:
            built[owner] = FieldIds(Vocabulary.of([]), np.zeros(0, np.int32), dropped=0)
            continue
        sharing = [index for index, other in enumerate(schema.owners) if other == owner]
        values = functools.partial(values_of, owner)
        own_counts = counts[owner]
        if len(sharing) > 1 and not schema.fields[owner].hash_bits:
            missing = np.diff(values(np.arange(len(own_counts))).ends, prepend=np.uint64(0)) == 0
            own_counts = np.where(missing, sum(counts[index] for index in sharing), own_counts)
        built[owner] = build_field(schema.fields[owner], own_counts, values, known[owner] if known else None)
    return [built[owner].with_counts(counts[index]) for index, owner in enumerate(schema.owners)]


def build_field(
    field: Field,
    counts: NDArray[np.int64],
    values_of: Callable[[NDArray[np.int64]], Vocabulary] = lambda codes: Vocabulary.of([]),
    known: Vocabulary | None = None,
) -> FieldIds:
    """Assign ids to the values of a field from the count of each code; ``values_of`` returns the values of codes."""
    if field.hash_bits:
        hashed = dataclasses.replace(Vocabulary.of([]), counts=counts, hashed=len(counts))
        return FieldIds(hashed, np.arange(1, len(counts) + 1, dtype=np.int32), dropped=0)
    kept = counts >= field.min_count
    if field.has_boundaries and field.is_list:
        kept[:-2] = True  # all knots
        kept[-1] = False  # the code of the unknown value
    if known is not None:
        rare = np.flatnonzero(~kept)
        kept[rare] = values_of(rare).ids_in(known)[1:] > 0
    if field.missing_is_unknown:
        kept &= np.diff(values_of(np.arange(len(counts))).ends, prepend=np.uint64(0)) > 0
    by_frequency = np.argsort(-counts, kind="stable")
    codes = by_frequency[kept[by_frequency]]
    ids = np.zeros(len(counts), np.int32)
    ids[codes] = np.arange(1, len(codes) + 1)
    vocabulary = dataclasses.replace(values_of(codes), counts=counts[codes])
    if known is not None:
        vocabulary = vocabulary.with_values_of(known, keep_counts=False)
    return FieldIds(vocabulary, ids, dropped=int(np.count_nonzero((counts > 0) & (ids == 0))))
