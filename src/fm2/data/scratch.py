"""What the first pass over a log leaves for the later ones: blocks of provisional numbers, in files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Block:
    """Some rows of the log: provisional numbers (fields × rows), labels, times, and the rows' numbers in the log.

    ``split`` is set where the rows come from files of their own for validation or test.
    """

    numbers: NDArray[np.int32]
    labels: NDArray[np.uint8]
    times: NDArray[np.int64]
    rows: NDArray[np.int64]
    split: int | None


@dataclass(frozen=True)
class _Entry:
    first: int
    rows: int
    dropped: NDArray[np.int64]
    split: int | None


class Scratch:
    """Blocks on disk, written once and read in order as often as needed; memory holds one at a time."""

    def __init__(self, directory: Path, fields: int, timed: bool) -> None:
        self._fields, self._timed = fields, timed
        self._paths = [directory / f"scratch.{name}" for name in ("numbers", "labels", "times")]
        self._files = [path.open("wb") for path in self._paths]
        self._entries: list[_Entry] = []
        self.rows = 0

    def append(self, block: Block, first: int, dropped: NDArray[np.int64]) -> None:
        """Write a block; its rows are those of the log from ``first`` on, without the dropped ones."""
        for file, values in zip(self._files, (block.numbers, block.labels, block.times), strict=True):
            file.write(np.ascontiguousarray(values).data)
        self._entries.append(_Entry(first, len(block.labels), dropped, block.split))
        self.rows += len(block.labels)

    def blocks(self, numbers: bool = True) -> Iterator[Block]:
        """Give all blocks again, with or without their numbers."""
        for written in self._files:
            written.flush()
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in self._paths]
            for entry in self._entries:
                size = self._fields * entry.rows if numbers else 0
                found = np.fromfile(files[0], np.int32, size).reshape(self._fields, -1)
                labels = np.fromfile(files[1], np.uint8, entry.rows)
                times = np.fromfile(files[2], np.int64, entry.rows if self._timed else 0)
                rows = np.delete(entry.first + np.arange(entry.rows + len(entry.dropped)), entry.dropped)
                yield Block(found, labels, times, rows, entry.split)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)
