"""The files of multi-valued fields in a dataset: the lists that the rows of all splits refer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fm2 import _native
from fm2.data.npy import open_array
from fm2.data.rows import Lists
from fm2.data.splits import SPLITS, Assignment
from fm2.errors import Fm2Error
from fm2.files import checksum
from fm2.schema import Schema

if TYPE_CHECKING:
    from fm2.data.log_reader import Block

DIRECTORY = "lists"
DTYPES: dict[str, DTypeLike] = {"offsets": np.int64, "ids": np.int32, "weights": np.float32}
REMEMBERED_LISTS = 1 << 18  # per field; later lists are stored even if an equal one has been


def file_name(field: int, part: str) -> str:
    """Return the name of a file in the dataset, for example ``lists/3.ids.npy``."""
    return f"{DIRECTORY}/{field}.{part}.npy"


class ListFiles:
    """Write the lists of multi-valued fields, block by block. Equal lists are stored once if they are frequent."""

    def __init__(self, directory: Path, fields: Sequence[int]) -> None:
        self.fields = list(fields)
        self._directory = directory
        if self.fields:
            (directory / DIRECTORY).mkdir()
        self._tables = [_native.ListTable(REMEMBERED_LISTS) for _ in self.fields]
        self._arrays = [
            {part: _GrowingArray(directory / file_name(field, part), dtype) for part, dtype in DTYPES.items()}
            for field in self.fields
        ]
        self._weighted = [False] * len(self.fields)
        for arrays in self._arrays:
            arrays["offsets"].append(np.zeros(1, np.int64))

    def write(
        self, block: Block, rows: NDArray[np.int64], ids_of: Sequence[NDArray[np.int32]], threads: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Store the lists of these rows of a block, one per row and field, with ids instead of codes.

        Return the number of each list and how many of its ids are unknown, both list fields × rows.
        """
        numbers = np.empty((len(self.fields), len(rows)), np.int32)
        unknown = np.empty((len(self.fields), len(rows)), np.int32)
        all_rows = len(rows) == len(block)
        lists = [block.lists[field] if all_rows else block.lists[field].take(rows) for field in self.fields]
        arguments = [table.arrays() for table in lists], [ids_of[field] for field in self.fields]
        _native.number_lists(self._tables, *arguments, numbers, unknown, threads)
        for index, (table, arrays) in enumerate(zip(self._tables, self._arrays, strict=True)):
            offsets, ids, weights = table.added
            arrays["offsets"].append(offsets[1:] + arrays["ids"].size)
            arrays["ids"].append(ids)
            arrays["weights"].append(weights)
            self._weighted[index] = self._weighted[index] or bool((weights != 1).any())
        return numbers, unknown

    def close(self) -> dict[str, dict[str, Any]]:
        """Complete the files; return the size and checksum of each. Weights that are all 1 are not kept."""
        files = {}
        for field, arrays, weighted in zip(self.fields, self._arrays, self._weighted, strict=True):
            for part, array in arrays.items():
                array.close()
                path = self._directory / file_name(field, part)
                if part == "weights" and not weighted:
                    path.unlink()
                else:
                    files[file_name(field, part)] = {"bytes": path.stat().st_size, "sha256": checksum(path)}
        return files


class ListNumbers(Protocol):
    """The numbers of the lists of multi-valued ``fields``."""

    fields: list[int]

    def of(
        self,
        block: Block,
        rows: NDArray[np.int64],
        assignment: Assignment,
        impressions: NDArray[np.uint32] | None,
    ) -> NDArray[np.int32]:
        """Return the numbers of the lists of these rows of the next block, list fields × rows."""


class NewLists:
    """Number lists in the order of the log, write them to files, and count them."""

    def __init__(self, directory: Path, schema: Schema, ids_of: Sequence[NDArray[np.int32]], threads: int) -> None:
        self.fields = [index for index, field in enumerate(schema.fields) if field.is_list]
        self._files = ListFiles(directory, self.fields)
        self.counts = ListCounts(self.fields)
        self._ids_of, self._threads = ids_of, threads

    def of(
        self,
        block: Block,
        rows: NDArray[np.int64],
        assignment: Assignment,
        impressions: NDArray[np.uint32] | None,
    ) -> NDArray[np.int32]:
        numbers, unknown = self._files.write(block, rows, self._ids_of, self._threads)
        self.counts.add(block, rows, unknown, assignment, impressions)
        return numbers

    def close(self) -> dict[str, dict[str, Any]]:
        """Complete the files; return the size and checksum of each."""
        return self._files.close()


class ListCounts:
    """Count the values, the unknown values, the empty and the missing lists of multi-valued fields in each split."""

    def __init__(self, fields: Sequence[int]) -> None:
        self._fields = list(fields)
        self._counts = np.zeros((3, len(self._fields), len(SPLITS)), np.int64)  # values, empty, missing
        self.unknown = np.zeros((len(self._fields), len(SPLITS)), np.int64)

    def add(
        self,
        block: Block,
        rows: NDArray[np.int64],
        unknown: NDArray[np.int32],
        assignment: Assignment,
        impressions: NDArray[np.uint32] | None,
    ) -> None:
        """Add these rows of a block, as often as they have impressions.

        ``unknown`` is the number of their unknown values, list fields × rows.
        """
        times = 1 if impressions is None else impressions[rows].astype(np.int64)
        for index, field in enumerate(self._fields):
            sizes = block.lists[field].sizes[rows]
            for total, counted in (
                (self._counts[0], sizes),
                (self._counts[1], sizes == 0),
                (self._counts[2], block.codes[field][rows]),
                (self.unknown, unknown[index]),
            ):
                sums = np.bincount(assignment[rows], weights=counted * times, minlength=len(SPLITS))
                total[index] += sums.astype(np.int64)

    def by_field(self) -> dict[int, dict[str, dict[str, int]]]:
        """Return the counts by field, kind and split."""
        return {
            field: {
                kind: dict(zip(SPLITS, counts[index].tolist(), strict=True))
                for kind, counts in zip(("values", "empty", "missing"), self._counts, strict=True)
            }
            for index, field in enumerate(self._fields)
        }


class _GrowingArray:
    """A .npy file of an array whose size is not known in advance. Its header is written again at the end."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.size = 0
        self._dtype = np.dtype(dtype)
        self._file: IO[bytes] = path.open("wb")
        self._write_header()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first dimension can grow in place.
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.size += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()


def open_lists(path: Path, schema: Schema, files: Mapping[str, Any]) -> dict[int, Lists]:
    """Map the lists of a dataset's multi-valued fields. Their types and sizes are checked, their ids are not."""
    lists = {}
    for index, field in enumerate(schema.fields):
        if field.is_list:
            offsets, ids = _load(path, index, "offsets"), _load(path, index, "ids")
            weights = _load(path, index, "weights") if file_name(index, "weights") in files else None
            sizes_match = len(offsets) and offsets[0] == 0 and offsets[-1] == len(ids)
            if not sizes_match or (weights is not None and len(weights) != len(ids)):
                raise Fm2Error(f"{path} is damaged: the lists of field '{field.name}' are inconsistent")
            lists[index] = Lists(offsets, ids, weights)
    return lists


def _load(path: Path, field: int, part: str) -> Any:
    name = file_name(field, part)
    try:
        array = open_array(path / name)
    except (OSError, ValueError) as error:
        raise Fm2Error(f"{path} is damaged: {name} is not a valid array") from error
    if array.dtype != DTYPES[part] or array.ndim != 1:
        raise Fm2Error(f"{path} is damaged: {name} is not a valid array")
    return array
