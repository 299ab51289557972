"""The second pass of prepare: count the values of the training rows, learn quantiles, and build vocabularies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.log_reader import Block, StoredRows
from fm2.data.numbers import NumberCodes, learn_boundaries
from fm2.data.rows import native_lists
from fm2.data.splits import DROPPED, SPLITS, Assignment
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Field, Schema

Impressions = NDArray[np.uint32] | None  # of each row of a block; None: every row is one impression
Assign = Callable[[Block], tuple[Assignment, Impressions]]  # the split of each row, and what is left of its impressions

ValuesOf = Callable[[NDArray[np.int64]], Vocabulary]  # the values of codes

NUMBER_SAMPLE = 1_000_000
# The training rows up to which fields keep values that occur twice, and three times. With 2 instead of 4, the test log
# loss of LR, FFM and FmFM is .0009, .0001 and .0003 lower on avazu (24,000 rows), .0014, .0003 and .0003 on adult, and
# that of trees .016 on a log of restaurants with many rare names. With 110,000 rows (criteo_inferred), there is hardly
# a difference, but there are twice as many features.
ROWS_FOR_MIN_COUNTS = {65_536: 2, 131_072: 3}
LARGEST_MIN_COUNT = 4


def with_min_counts(schema: Schema, training_rows: int, is_known: bool = False) -> Schema:
    """Return a schema in which all fields have a ``min_count``, by default the one for so many training rows.

    Impressions count as rows. If the vocabularies are known (``is_known``), they keep their values, and grow only by
    frequent ones.

    >>> schema = Schema([Field("site"), Field("ad", min_count=8)], label="click")
    >>> [[field.min_count for field in with_min_counts(schema, rows).fields] for rows in (1_000, 100_000, 1_000_000)]
    [[2, 8], [3, 8], [4, 8]]
    """
    found = (least for rows, least in ROWS_FOR_MIN_COUNTS.items() if training_rows <= rows and not is_known)
    return schema.with_min_count(next(found, LARGEST_MIN_COUNT), where_default=True)


class Values(Protocol):
    """The values of the codes of all fields."""

    def values(self, field: int, codes: NDArray[np.int64], /) -> tuple[bytes, NDArray[np.uint64]]:
        """Return the concatenated values of codes, and where each of them ends."""


@dataclass(frozen=True)
class Counts:
    """Sums by split of each block, and for each field without boundaries how often each code occurs.

    The sums are rows, clicks and, if the schema has them, impressions, weight and weighted clicks.
    """

    blocks: Sequence[Mapping[str, NDArray[np.float64]]]
    dropped: int  # rows that belong to no split
    codes: list[NDArray[np.int64]]

    @functools.cached_property
    def totals(self) -> dict[str, NDArray[np.float64]]:
        """The sums of all blocks, added in the order of the log, so that rounding does not depend on its parts."""
        totals = {"rows": np.zeros(len(SPLITS))}
        for sums in self.blocks:
            totals |= {name: totals.get(name, 0) + added for name, added in sums.items()}
        return totals

    @property
    def split_rows(self) -> list[int]:
        """The number of rows of each split."""
        rows: list[int] = self.totals["rows"].astype(np.int64).tolist()
        return rows

    @property
    def training(self) -> int:
        """The number of training rows, or of impressions in them."""
        training = self.of_split(0)
        return int(training.get("impressions", training["rows"]))

    @property
    def click_rate(self) -> float:
        """The share of clicks in the training rows, or of impressions in them."""
        return self.of_split(0).get("clicks", 0) / max(self.training, 1)

    def of_split(self, number: int) -> dict[str, int | float]:
        """Return the totals of one split."""
        return {
            name: float(sums[number]) if "weight" in name else int(sums[number]) for name, sums in self.totals.items()
        }


def count_rows(
    blocks: Iterable[Block],
    assign: Assign,
    schema: Schema,
    size_of: Callable[[int], int],
    *,
    all_splits: bool,
    threads: int,
) -> Counts:
    """Count the rows of all splits, and the codes of the training rows, or of ``all_splits``.

    With impressions, a row counts as often as it has impressions. ``size_of`` returns the number of codes of a field so
    far.
    """
    sums_of_blocks: list[dict[str, NDArray[np.float64]]] = []
    dropped = 0
    owners = [schema.fields[owner] for owner in schema.owners]
    hashed = [owner.hash_bits if not owner.is_derived else 0 for owner in owners]
    codes = [np.zeros(1 << bits if bits else 0, np.int64) for bits in hashed]
    growing = fields_with_values(schema)
    for block in blocks:
        split, impressions = assign(block)
        sums_of_blocks.append(
            {
                name: np.bincount(split, values, minlength=len(SPLITS) + 1).astype(np.float64)[: len(SPLITS)]
                for name, values in _to_add(block, impressions).items()
            }
        )
        dropped += int(np.count_nonzero(split == DROPPED))
        for index in growing:
            size = len(codes[index])
            if (needed := size_of(index)) > size:
                codes[index] = np.pad(codes[index], (0, max(needed, size * 5 // 4) - size))
        lists = native_lists(block.lists, len(codes))
        _native.count_codes(block.codes, lists, row_counts(split, impressions, all_splits), codes, threads)
    for index in growing:
        size = size_of(index)  # larger than before if the last rows are bad
        codes[index] = np.pad(codes[index], (0, max(size - len(codes[index]), 0)))[:size]
    return Counts(sums_of_blocks, dropped, codes)


def fields_with_values(schema: Schema) -> list[int]:
    """Return the fields whose codes number their values: not those with hashes, boundaries or parts."""
    owners = [schema.fields[owner] for owner in schema.owners]
    return [i for i, f in enumerate(owners) if not (f.hash_bits or f.has_boundaries or f.is_derived)]


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
    sample: Callable[[Sequence[int], int], NDArray[np.float32]],
    training_rows: int,
    click_rate: float,
) -> dict[int, NDArray[np.float32]]:
    """Return the boundaries of numeric fields: the ``known`` ones, or from up to a million spaced training rows.

    ``sample`` returns the numbers of these fields, fields × rows, in every n-th training row. With impressions,
    ``training_rows`` is the number of impressions, and these are spaced.
    """
    fields = {index: field for index, field in enumerate(schema.fields) if field.has_boundaries}
    if known or not fields:
        return {index: known[index].boundaries for index in fields}
    step = -(-training_rows // NUMBER_SAMPLE)
    numbers = sample(list(fields), step)
    return {
        index: learn_boundaries(numbers[i], field, step, click_rate) for i, (index, field) in enumerate(fields.items())
    }


def sample_numbers(
    rows: StoredRows, assign: Assign, fields: Sequence[int], step: int, seen: int = 0
) -> NDArray[np.float32]:
    """Return the numbers of fields in every n-th training row or impression, after those ``seen`` before the rows."""
    samples = [np.empty((len(fields), 0), np.float32)]
    for block in rows.blocks(fields):
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
    return np.concatenate(samples, axis=1)


def count_numbers(
    rows: StoredRows, assign: Assign, numbers: NumberCodes, *, all_splits: bool, threads: int
) -> dict[int, NDArray[np.int64]]:
    """Count how often each code of the fields with boundaries occurs."""
    counts = {index: np.zeros(len(numbers.texts(index)), np.int64) for index in numbers.fields}
    if not counts:
        return counts
    for block in rows.blocks(list(numbers.fields)):
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
    values: Values,
    known: Sequence[Vocabulary],
) -> list[FieldIds]:
    """Assign ids to the values of each field that are frequent enough, or in its ``known`` vocabulary.

    Fields that share a vocabulary have the same codes. The vocabulary has the values of its owner: a history often
    contains items because they were clicked, so counting it as well would reveal the labels of rare items. Only a
    missing value counts in all fields. The vocabularies of derived fields stay empty.
    """

    def values_of(index: int, codes: NDArray[np.int64]) -> Vocabulary:
        """Return the values of codes as a vocabulary without counts."""
        if index in numbers.fields:
            texts = numbers.texts(index)
            known = Vocabulary.of([texts[code] for code in codes.tolist()])
            return dataclasses.replace(known, boundaries=numbers.boundaries[index])
        data, ends = values.values(index, codes)
        empty = Vocabulary.of([])
        return dataclasses.replace(empty, data=np.frombuffer(data, np.uint8), ends=np.array(ends, np.uint64))

    built: dict[int, FieldIds] = {}
    for owner, sharing in sharing_fields(schema).items():
        if schema.fields[owner].is_derived:
            built[owner] = FieldIds(Vocabulary.of([]), np.zeros(0, np.int32), dropped=0)
            continue
        of_field = functools.partial(values_of, owner)
        own = own_counts(schema.fields[owner], owner, {index: counts[index] for index in sharing}, of_field)
        built[owner] = build_field(schema.fields[owner], own, of_field, known[owner] if known else None)
    return [built[owner].with_counts(counts[index]) for index, owner in enumerate(schema.owners)]


def own_counts(
    field: Field, owner: int, counts: Mapping[int, NDArray[np.int64]], values_of: ValuesOf
) -> NDArray[np.int64]:
    """Return the counts that decide about an owner's vocabulary, from the ``counts`` of all fields that share it."""
    if len(counts) == 1 or field.hash_bits:
        return counts[owner]
    missing = np.diff(values_of(np.arange(len(counts[owner]))).ends, prepend=np.uint64(0)) == 0
    return np.where(missing, sum(counts.values()), counts[owner])


def sharing_fields(schema: Schema) -> dict[int, list[int]]:
    """Return the fields that share a vocabulary, by its owner."""
    sharing: dict[int, list[int]] = {}
    for index, owner in enumerate(schema.owners):
        sharing.setdefault(owner, []).append(index)
    return sharing


def build_field(
    field: Field,
    counts: NDArray[np.int64],
    values_of: ValuesOf = lambda codes: Vocabulary.of([]),
    known: Vocabulary | None = None,
) -> FieldIds:
    """Assign ids to the values of a field from the count of each code; ``values_of`` returns the values of codes."""
    if field.hash_bits:
        hashed = dataclasses.replace(Vocabulary.of([]), counts=counts, hashed=len(counts))
        return FieldIds(hashed, np.arange(1, len(counts) + 1, dtype=np.int32), dropped=0)
    kept = kept_codes(field, counts, values_of, known)
    by_frequency = np.argsort(-counts, kind="stable")
    codes = by_frequency[kept[by_frequency]]
    ids = np.zeros(len(counts), np.int32)
    ids[codes] = np.arange(1, len(codes) + 1)
    vocabulary = dataclasses.replace(values_of(codes), counts=counts[codes])
    if known is not None:
        vocabulary = vocabulary.with_values_of(known, keep_counts=False)
    return FieldIds(vocabulary, ids, dropped=int(np.count_nonzero((counts > 0) & (ids == 0))))


def kept_codes(
    field: Field, counts: NDArray[np.int64], values_of: ValuesOf, known: Vocabulary | None
) -> NDArray[np.bool_]:
    """Return which codes of a field get an id: those that are frequent enough, or known."""
    kept: NDArray[np.bool_] = counts >= field.min_count
    if field.has_boundaries and field.is_list:
        kept[:-2] = True  # all knots
        kept[-1] = False  # the code of the unknown value
    if known is not None:
        rare = np.flatnonzero(~kept)
        kept[rare] = values_of(rare).ids_in(known)[1:] > 0
    if field.missing_is_unknown:
        kept &= np.diff(values_of(np.arange(len(counts))).ends, prepend=np.uint64(0)) > 0
    return kept
