"""The rows of a log between the passes of prepare: blocks of codes in temporary files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Block:
    """Good rows of the log: codes (fields × rows), labels and times.

    The codes of a field number its distinct values in order of appearance. The rows are consecutive rows of the log
    from ``first`` on, without those at the offsets ``dropped``. ``split`` is set if the rows come from a source for
    validation or test.
    """

    codes: NDArray[np.int32]
    labels: NDArray[np.uint8]
    times: NDArray[np.int64]
    first: int
    dropped: NDArray[np.int64]
    split: int | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the rows in the log."""
        return np.delete(np.arange(self.first, self.first + len(self) + len(self.dropped)), self.dropped)


class ScratchRows:
    """Blocks in temporary files: written once, then read in order as often as needed, one block at a time."""

    def __init__(self, directory: Path, fields: int) -> None:
        self._fields = fields
        self._paths = [directory / f"scratch.{name}" for name in ("codes", "labels", "times")]
        self._files = [path.open("wb") for path in self._paths]
        self._stored: list[tuple[int, int, int, NDArray[np.int64], int | None]] = []
        self.rows = 0

    def record(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Write blocks as they pass through."""
        for block in blocks:
            for file, values in zip(self._files, (block.codes, block.labels, block.times), strict=True):
                file.write(np.ascontiguousarray(values).data)
            self._stored.append((len(block), len(block.times), block.first, block.dropped, block.split))
            self.rows += len(block)
            yield block

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        """Yield the blocks with the codes of all fields, or of these fields only, which reads less."""
        for written in self._files:
            written.flush()
        start = 0
        with contextlib.ExitStack() as stack:
            codes_file, labels_file, times_file = (stack.enter_context(path.open("rb")) for path in self._paths)
            for rows, time_count, first, dropped, split in self._stored:
                codes = self._read_codes(codes_file, start, rows, fields)
                labels = np.fromfile(labels_file, np.uint8, rows)
                times = np.fromfile(times_file, np.int64, time_count)
                yield Block(codes, labels, times, first, dropped, split)
                start += self._fields * rows

    def _read_codes(self, file: IO[bytes], start: int, rows: int, fields: Sequence[int] | None) -> NDArray[np.int32]:
        if fields is None:
            return np.fromfile(file, np.int32, self._fields * rows).reshape(self._fields, rows)
        codes = np.empty((len(fields), rows), np.int32)
        for index, field in enumerate(fields):
            file.seek((start + field * rows) * codes.itemsize)
            codes[index] = np.fromfile(file, np.int32, rows)
        return codes

    def close(self) -> None:
        """Remove the files."""
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)
