"""Merge the values of several parts into vocabularies, by shards of their hashes.

A task divides the values of its part among the shards. Another one merges a shard of all parts and keeps the values
that are frequent enough. So no process needs the rare values of the whole log, which are most of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.counting import Values, kept_codes, own_counts, sharing_fields
from fm2.data.part_rows import PartRows, load, owners_with_values, save
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Schema

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class KeptValues:
    """Values of a field that are frequent enough, with the counts of all fields that share its vocabulary.

    ``first`` says where a value first occurs in the log: part and code. ``dropped`` is the number of other values.
    """

    data: bytes
    ends: NDArray[np.uint64]
    first: Ints
    counts: Mapping[int, Ints]
    dropped: Mapping[int, int]


def divide_values(values: Values, sizes: Mapping[int, int], directory: Path, shards: int) -> None:
    """Write the values of a part, of which each field has so many, to a file for every shard."""
    codes_of: list[dict[int, Ints]] = [{} for _ in range(shards)]
    for owner, size in sizes.items():
        data, ends = values.values(owner, np.arange(size))
        shard_of = _native.feature_hashes(np.frombuffer(data, np.uint8), ends)[1:] % np.uint64(shards)
        order = np.argsort(shard_of, kind="stable")
        for shard, codes in enumerate(np.split(order, np.searchsorted(shard_of[order], np.arange(1, shards)))):
            codes_of[shard][owner] = codes
    for shard, by_owner in enumerate(codes_of):
        save(directory, f"codes-{shard}", by_owner)
        save(directory, f"values-{shard}", {owner: values.values(owner, codes) for owner, codes in by_owner.items()})


def divide_counts(part: PartRows, counts: Sequence[Ints], shards: int) -> None:
    """Write the counts of the values of a part to a file for every shard."""
    sharing = sharing_fields(part.schema)
    for shard in range(shards):
        codes_of = load(part.directory, f"codes-{shard}")
        by_owner = {owner: [counts[field][codes] for field in sharing[owner]] for owner, codes in codes_of.items()}
        save(part.directory, f"counts-{shard}", by_owner)


def merge_shard(
    schema: Schema, known: Sequence[Vocabulary], directories: Sequence[Path], shard: int
) -> dict[int, KeptValues]:
    """Merge the values of a shard of all parts; write for each part the numbers of its values among the kept ones."""
    indexes = {owner: _native.StringIndex() for owner in owners_with_values(schema)}
    sharing = sharing_fields(schema)
    first = {owner: np.zeros(0, np.int64) for owner in indexes}
    counts = {owner: np.zeros((len(sharing[owner]), 0), np.int64) for owner in indexes}
    numbers_of: list[dict[int, NDArray[np.int32]]] = []
    for part, directory in enumerate(directories):
        codes, values, of_part = (load(directory, f"{name}-{shard}") for name in ("codes", "values", "counts"))
        numbers_of.append({})
        for owner, index in indexes.items():
            size = len(index)
            data, ends = values[owner]
            numbers = numbers_of[-1][owner] = index.add(np.frombuffer(data, np.uint8), ends)
            first[owner] = np.append(first[owner], (np.int64(part) << 32) + codes[owner][numbers >= size])
            counts[owner] = np.pad(counts[owner], ((0, 0), (0, len(index) - size)))
            counts[owner][:, numbers] += of_part[owner]
    merged, places = dict[int, KeptValues](), dict[int, NDArray[np.int32]]()
    for owner, index in indexes.items():
        of_fields = dict(zip(sharing[owner], counts[owner], strict=True))
        of_known = known[owner] if known else None
        merged[owner], places[owner] = _keep(schema, owner, of_fields, index, first[owner], of_known)
    for directory, by_owner in zip(directories, numbers_of, strict=True):
        save(directory, f"kept-{shard}", {owner: places[owner][numbers] for owner, numbers in by_owner.items()})
    return merged


def _keep(
    schema: Schema,
    owner: int,
    counts: dict[int, Ints],
    index: _native.StringIndex,
    first: Ints,
    known: Vocabulary | None,
) -> tuple[KeptValues, NDArray[np.int32]]:
    """Return the values to keep, and for each merged value its number among them, or -1."""

    def values_of(chosen: Ints) -> Vocabulary:
        data, ends = index.values(chosen)
        return dataclasses.replace(Vocabulary.of([]), data=np.frombuffer(data, np.uint8), ends=ends)

    field = schema.fields[owner]
    own = own_counts(field, owner, counts, values_of)
    kept = np.flatnonzero(kept_codes(field, own, values_of, known))
    places = np.full(len(index), -1, np.int32)
    places[kept] = np.arange(len(kept))
    data, ends = index.values(kept)
    dropped = {each: int(np.count_nonzero((of_field > 0) & (places < 0))) for each, of_field in counts.items()}
    kept_counts = {each: of_field[kept] for each, of_field in counts.items()}
    return KeptValues(data, ends, first[kept], kept_counts, dropped), places


class MergedValues:
    """The kept values of all shards. Codes number them in the order in which they occur in the log."""

    def __init__(self, schema: Schema, shards: Sequence[Mapping[int, KeptValues]]) -> None:
        self._schema = schema
        self._values: dict[int, tuple[_native.StringIndex, Ints]] = {}  # by owner, and the number of each code in it
        self._codes: dict[int, list[Ints]] = {}  # by owner and shard, the code of each kept value
        self.counts: dict[int, Ints] = {}
        self.dropped: dict[int, int] = {}
        for owner in owners_with_values(schema):
            of_shards = [shard[owner] for shard in shards]
            index = _native.StringIndex()
            for kept in of_shards:
                index.add(np.frombuffer(kept.data, np.uint8), kept.ends)
            order = np.argsort(np.concatenate([kept.first for kept in of_shards]))
            codes = np.empty_like(order)
            codes[order] = np.arange(len(order))
            self._values[owner] = index, order
            self._codes[owner] = np.split(codes, np.cumsum([len(kept.first) for kept in of_shards])[:-1])
            for field in of_shards[0].counts:
                self.counts[field] = np.concatenate([kept.counts[field] for kept in of_shards])[order]
                self.dropped[field] = sum(kept.dropped[field] for kept in of_shards)

    def values(self, field: int, codes: Ints) -> tuple[bytes, NDArray[np.uint64]]:
        """Return the concatenated values of codes, and where each of them ends."""
        index, order = self._values[self._schema.owners[field]]
        return index.values(order[codes])

    def ids_by_shard(self, owner: int, ids: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """Return the ids of the kept values of each shard from the ``ids`` of codes."""
        return [ids[codes] for codes in self._codes[owner]]


def write_ids(ids: Mapping[int, Sequence[NDArray[np.int32]]], part: PartRows) -> None:
    """Write the id of each code of a part; ``ids`` are those of the kept values, by owner and shard."""
    of_codes = {owner: np.zeros(size, np.int32) for owner, size in part.sizes.items()}
    for shard in range(len(next(iter(ids.values()), ()))):
        codes, kept = (load(part.directory, f"{name}-{shard}") for name in ("codes", "kept"))
        for owner, of_owner in of_codes.items():
            has_id = kept[owner] >= 0
            of_owner[codes[owner][has_id]] = ids[owner][shard][kept[owner][has_id]]
    part.save_ids(of_codes)
