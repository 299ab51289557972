"""The second pass of prepare: count the values of the training rows, learn quantiles, and build vocabularies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.log_reader import Block, ScratchRows
from fm2.data.splits import SPLITS, Assignment
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Field, Schema

Assign = Callable[[Block], Assignment]
Boundaries = Mapping[int, NDArray[np.float32]]

QUANTILE_SAMPLE = 1_000_000


@dataclass(frozen=True)
class Counts:
    """Rows and clicks of each split, and for each field how often each code occurs. Quantile fields have no counts."""

    rows: NDArray[np.int64]
    clicks: NDArray[np.int64]
    codes: list[NDArray[np.int64]]


def count_rows(
    blocks: Iterable[Block],
    assign: Assign,
    schema: Schema,
    collector: _native.Collector,
    *,
    all_splits: bool,
    threads: int,
) -> Counts:
    """Count the rows of all splits, and the codes of the training rows, or of ``all_splits``."""
    rows = np.zeros(len(SPLITS), np.int64)
    clicks = np.zeros(len(SPLITS), np.int64)
    codes = [np.zeros(1 << field.hash_bits if field.hash_bits else 0, np.int64) for field in schema.fields]
    vocabulary_fields = [i for i, f in enumerate(schema.fields) if not f.hash_bits and f.transform != "quantiles"]
    for block in blocks:
        split = assign(block)
        rows += np.bincount(split, minlength=len(SPLITS))
        clicks += np.bincount(split[block.labels == 1], minlength=len(SPLITS))
        for index in vocabulary_fields:
            size = len(codes[index])
            if (needed := collector.size(index)) > size:
                codes[index] = np.pad(codes[index], (0, max(needed, size * 5 // 4) - size))
        _native.count_codes(block.codes, _counted(split, all_splits), codes, threads)
    for index in vocabulary_fields:
        codes[index] = codes[index][: collector.size(index)]
    return Counts(rows, clicks, codes)


def learn_quantiles(
    schema: Schema, known: Sequence[Vocabulary], scratch: ScratchRows, assign: Assign, training_rows: int
) -> dict[int, NDArray[np.float32]]:
    """Return the boundaries of quantile fields: the ``known`` ones, or from up to a million spaced training rows."""
    fields = {index: field for index, field in enumerate(schema.fields) if field.transform == "quantiles"}
    if known or not fields:
        return {index: known[index].boundaries for index in fields}
    step = -(-training_rows // QUANTILE_SAMPLE)
    seen = 0
    samples: list[NDArray[np.float32]] = []
    for block in scratch.blocks(list(fields)):
        training = np.flatnonzero(assign(block) == 0)
        samples.append(block.codes[:, training[-seen % step :: step]].view(np.float32))
        seen += len(training)
    sample = np.concatenate(samples, axis=1)
    return {index: _quantiles(sample[i], field) for i, (index, field) in enumerate(fields.items())}


def count_buckets(
    boundaries: Boundaries, scratch: ScratchRows, assign: Assign, *, all_splits: bool
) -> dict[int, NDArray[np.int64]]:
    """Count how often each bucket of each quantile field occurs; the last count is that of the missing value."""
    counts = {index: np.zeros(len(bounds) + 2, np.int64) for index, bounds in boundaries.items()}
    if not boundaries:
        return counts
    for block in scratch.blocks(list(boundaries)):
        counted = _counted(assign(block), all_splits) == 1
        for codes, (index, bounds) in zip(block.codes, boundaries.items(), strict=True):
            counts[index] += np.bincount(bucket_codes(codes, bounds)[counted], minlength=len(bounds) + 2)
    return counts


def bucket_codes(codes: NDArray[np.int32], boundaries: NDArray[np.float32]) -> NDArray[np.int64]:
    """Turn the codes of a quantile field, which are the bits of floats, into bucket numbers; NaN is the last."""
    values = codes.view(np.float32)
    buckets = np.searchsorted(boundaries, values, side="right")
    return np.where(np.isnan(values), len(boundaries) + 1, buckets)


def _counted(split: Assignment, all_splits: bool) -> NDArray[np.uint8]:
    return np.ones(len(split), np.uint8) if all_splits else (split == 0).astype(np.uint8)


def _quantiles(values: NDArray[np.float32], field: Field) -> NDArray[np.float32]:
    largest = np.finfo(np.float32).max  # larger numbers became infinite, but a boundary has to be finite
    values = np.clip(values[~np.isnan(values)], -largest, largest)
    if len(values) == 0:
        return values
    shares = np.arange(1, field.buckets) / field.buckets
    boundaries = np.unique(np.quantile(values, shares, method="higher").astype(np.float32))
    above_minimum: NDArray[np.float32] = boundaries[boundaries > values.min()]
    return above_minimum


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

    def values_of(index: int, codes: NDArray[np.int64]) -> Vocabulary:
        """Return the values of codes as a vocabulary without counts."""
        if index in boundaries:
            missing = len(boundaries[index]) + 1
            texts = ["" if code == missing else str(code) for code in codes.tolist()]
            return dataclasses.replace(Vocabulary.of(texts), boundaries=boundaries[index])
        data, ends = collector.values(index, codes)
        empty = Vocabulary.of([])
        return dataclasses.replace(empty, data=np.frombuffer(data, np.uint8), ends=np.array(ends, np.uint64))

    return [
        _build(field, counts[index], functools.partial(values_of, index), known[index] if known else None)
        for index, field in enumerate(schema.fields)
    ]


def _build(
    field: Field,
    counts: NDArray[np.int64],
    values_of: Callable[[NDArray[np.int64]], Vocabulary],
    known: Vocabulary | None,
) -> FieldIds:
    if field.hash_bits:
        hashed = dataclasses.replace(Vocabulary.of([]), counts=counts, hashed=len(counts))
        return FieldIds(hashed, np.arange(1, len(counts) + 1, dtype=np.int32), dropped=0)
    kept = counts >= field.min_count
    if known is not None:
        rare = np.flatnonzero(~kept)
        kept[rare] = values_of(rare).ids_in(known)[1:] > 0
    by_frequency = np.argsort(-counts, kind="stable")
    codes = by_frequency[kept[by_frequency]]
    ids = np.zeros(len(counts), np.int32)
    ids[codes] = np.arange(1, len(codes) + 1)
    vocabulary = dataclasses.replace(values_of(codes), counts=counts[codes])
    if known is not None:
        vocabulary = vocabulary.with_values_of(known, keep_counts=False)
    return FieldIds(vocabulary, ids, dropped=int(np.count_nonzero((counts > 0) & (ids == 0))))
