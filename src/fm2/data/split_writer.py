"""The last pass of prepare: write the ids, labels and row numbers of each split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fm2 import _native
from fm2.data.counting import Assign, Boundaries, bucket_codes
from fm2.data.scratch_rows import Block
from fm2.data.splits import SPLITS


@dataclass(frozen=True)
class WrittenSplits:
    """The size and checksum of each file, and how many values of each split and field are unknown."""

    files: dict[str, dict[str, Any]]
    unknown: NDArray[np.int64]  # splits × fields


def write_splits(
    directory: Path,
    blocks: Iterable[Block],
    assign: Assign,
    rows: Sequence[int],
    ids_of: list[NDArray[np.int32]],
    boundaries: Boundaries,
    threads: int,
) -> WrittenSplits:
    """Replace codes with ids and write the rows of each split; ``rows`` is the number of rows of each."""
    fields = len(ids_of)
    arrays = (("ids", (fields,), np.int32), ("labels", (), np.uint8), ("rows", (), np.int64))
    writers = [
        [NpyWriter(directory / split / f"{name}.npy", (count, *shape), dtype) for name, shape, dtype in arrays]
        for split, count in zip(SPLITS, rows, strict=True)
    ]
    unknown = np.zeros((len(SPLITS), fields), np.int64)
    for block in blocks:
        for index, bounds in boundaries.items():
            block.codes[index] = bucket_codes(block.codes[index], bounds)
        assignment = assign(block)
        order = np.argsort(assignment, kind="stable").astype(np.int32)
        ids = np.empty((len(order), fields), np.int32)
        _native.codes_to_ids(block.codes, order, ids_of, ids, threads)
        end = 0
        for number, count in enumerate(np.bincount(assignment, minlength=len(SPLITS))):
            part = slice(end, end + int(count))
            unknown[number] += (ids[part] == 0).sum(axis=0)
            values: list[NDArray[Any]] = [ids[part], block.labels[order[part]], block.rows[order[part]]]
            for writer, array in zip(writers[number], values, strict=True):
                writer.append(array)
            end = part.stop
    files = {writer.path.relative_to(directory).as_posix(): writer.close() for split in writers for writer in split}
    return WrittenSplits(files, unknown)


class NpyWriter:
    """Write an array of known shape to a .npy file, some rows at a time; compute the checksum at the same time."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._rows_left = shape[0]
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.flush()
        self._hash = hashlib.sha256(path.read_bytes())

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
