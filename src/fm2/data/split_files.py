"""The last pass of prepare: replace codes with ids, and write the rows of each split."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fm2 import _native
from fm2.data.counting import Assign
from fm2.data.dataset import is_weighted, label_type
from fm2.data.derived import DerivedEncoder
from fm2.data.list_files import ListNumbers, NewLists
from fm2.data.log_reader import Block
from fm2.data.npy import npy_header
from fm2.data.numbers import NumberCodes
from fm2.data.sampling import targets
from fm2.data.splits import DROPPED, SPLITS
from fm2.schema import Schema


@dataclass(frozen=True)
class Written:
    """The size and checksum of each file, and counts of the values that were written.

    ``unknown`` is the number of unknown values, splits × fields. ``lists`` has the number of values, empty and missing
    lists of each list field.
    """

    files: dict[str, dict[str, Any]]
    unknown: NDArray[np.int64]
    lists: dict[int, dict[str, dict[str, int]]]

    @classmethod
    def of_parts(cls, parts: Sequence[Written], lists: NewLists) -> Written:
        """Return what was written for all parts, and for the lists of all rows."""
        unknown = np.stack([part.unknown for part in parts]).sum(axis=0)
        unknown[:, lists.fields] = lists.counts.unknown.T
        files = {name: entry for part in parts for name, entry in part.files.items()}
        return cls(files | lists.close(), unknown, lists.counts.by_field())

    def of_field(self, index: int) -> dict[str, Any]:
        """Return the counts of a field for the manifest."""
        unknown = dict(zip(SPLITS, self.unknown[:, index].tolist(), strict=True))
        return {"unknown": unknown} | ({"lists": self.lists[index]} if index in self.lists else {})


def write_splits(
    directory: Path,
    blocks: Iterable[Block],
    assign: Assign,
    rows: Sequence[int],
    schema: Schema,
    ids_of: Sequence[NDArray[np.int32]],
    number_codes: NumberCodes,
    derived: DerivedEncoder,
    lists: ListNumbers,
    threads: int,
    starts: Sequence[int] | None = None,
) -> Written:
    """Replace codes with ids and write the rows of each split; ``rows`` is the number of rows of each.

    If the rows are a part of a dataset, ``starts`` is the number of rows of each split in the parts before it.
    """
    arrays: list[tuple[str, tuple[int, ...], DTypeLike]]
    arrays = [("ids", (len(ids_of),), np.int32), ("labels", (), label_type(schema)), ("rows", (), np.int64)]
    if is_weighted(schema):
        arrays.append(("weights", (), np.float32))
    writers = [
        [
            NpyWriter(
                directory / split / f"{name}.npy", (count, *shape), dtype, None if starts is None else starts[number]
            )
            for name, shape, dtype in arrays
        ]
        for number, (split, count) in enumerate(zip(SPLITS, rows, strict=True))
    ]
    unknown = np.zeros((len(SPLITS), len(ids_of)), np.int64)
    single = [ids if index not in lists.fields else np.zeros(2, np.int32) for index, ids in enumerate(ids_of)]
    for block in blocks:
        numbers = {index: block.codes[index].view(np.float32).copy() for index in derived.numbers}
        block = with_number_codes(block, number_codes, threads)
        assignment, impressions = assign(block)
        order = np.argsort(assignment, kind="stable").astype(np.int32)
        ids = np.empty((len(order), len(ids_of)), np.int32)
        _native.codes_to_ids(block.codes, order, single, ids, threads)
        ids[:, derived.lists] = order[:, None]
        numbers = {index: column[order] for index, column in numbers.items()}
        derived.encode(ids, block.rows[order], numbers, derived.part_lists(block, ids_of), threads)
        if lists.fields:
            kept = np.flatnonzero(assignment != DROPPED)
            list_numbers = lists.of(block, kept, assignment, impressions)
            ids[: len(kept), lists.fields] = list_numbers.T[np.searchsorted(kept, order[: len(kept)])]
        labels, weights = targets(block, impressions)
        end = 0
        for number, count in enumerate(np.bincount(assignment, minlength=len(SPLITS))[: len(SPLITS)]):
            part = slice(end, end + int(count))
            counted = ids[part] == 0
            if impressions is not None:
                counted = counted * impressions[order[part], None]
            unknown[number] += counted.sum(axis=0, dtype=np.int64)
            values: list[NDArray[Any]] = [ids[part], labels[order[part]], block.rows[order[part]]]
            if weights is not None:
                values.append(weights[order[part]])
            for writer, array in zip(writers[number], values, strict=True):
                writer.append(array)
            end = part.stop
    files = {writer.path.relative_to(directory).as_posix(): writer.close() for split in writers for writer in split}
    return Written(files, unknown, {})


def with_number_codes(block: Block, number_codes: NumberCodes, threads: int) -> Block:
    """Replace the numbers of a block with the codes of their features, or with lists of codes."""
    codes, lists = number_codes.encode({index: block.codes[index] for index in number_codes.fields}, threads)
    for index, of_field in codes.items():
        block.codes[index] = of_field
    return dataclasses.replace(block, lists={**block.lists, **lists})


class NpyWriter:
    """Write an array of known shape to a .npy file, some rows at a time; compute the checksum at the same time.

    If the array is a part of a larger one, it starts at the row ``start`` of that.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike, start: int | None = None) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._rows_left = shape[0]
        path.parent.mkdir(exist_ok=True)
        header = npy_header(shape, self._dtype, start)
        self._hash = hashlib.sha256(header)
        self._file = path.open("wb")
        self._file.write(header)

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows."""
        data = np.ascontiguousarray(rows, dtype=self._dtype).data
        self._rows_left -= len(rows)
        self._file.write(data)
        self._hash.update(data)

    def close(self) -> dict[str, Any]:
        """Close the file; return its size and checksum."""
        if self._rows_left:
            raise ValueError(f"{self.path.name}: {self._rows_left} rows are missing")
        self._file.close()
        return {"bytes": self.path.stat().st_size, "sha256": self._hash.hexdigest()}
