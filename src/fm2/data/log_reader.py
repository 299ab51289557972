"""The first pass of prepare: read the sources once, replace values with codes, and keep these in temporary files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.bad_rows import BadRows, explain_fault
from fm2.data.encoder import native_fields
from fm2.data.row_inputs import native_errors
from fm2.data.rows import Lists
from fm2.data.sources import BATCH_ROWS, ROW_BYTES, FrameSource, Source
from fm2.data.text_files import TextFile, read_chunks
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.schema import Field, Schema


@dataclass(frozen=True)
class Block:
    """Good rows of the log: codes (fields × rows), labels and times; impressions and weights if the schema has them.

    The codes of a field number its distinct values in order of appearance. Those of a multi-valued field are in its
    ``lists``, one per row; ``codes`` is 1 where the list is missing. The rows are consecutive rows of the log from
    ``first`` on, without those at the offsets ``dropped``. ``split`` is set if the rows come from a source for
    validation or test. With impressions, the labels are numbers of clicks.
    """

    codes: NDArray[np.int32]
    lists: Mapping[int, Lists]
    labels: NDArray[np.uint8 | np.uint32]
    times: NDArray[np.int64]
    first: int
    dropped: NDArray[np.int64]
    split: int | None
    impressions: NDArray[np.uint32] | None = None
    weights: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the rows in the log."""
        return np.delete(np.arange(self.first, self.first + len(self) + len(self.dropped)), self.dropped)


class LogReader:
    """Read sources one after the other. ``collector`` holds the values of all codes.

    ``rows_read`` is the number of rows so far, including bad ones.
    """

    def __init__(self, schema: Schema, time: Field | None, bad_rows: BadRows, threads: int) -> None:
        self._schema = schema
        self._bad_rows = bad_rows
        self.rows_read = 0
        self._bytes_read = 0  # of the current source
        columns = schema.source_columns
        self.collector = _native.Collector(
            native_fields(schema, columns),
            label=0,
            impressions=columns.index(schema.impressions) if schema.impressions else None,
            weight=columns.index(schema.weight) if schema.weight else None,
            time=columns.index(time.column) if time else None,
            time_format=(time and time.format) or "",
            missing=list(schema.missing),
            threads=threads,
            owners=list(schema.owners),
        )

    def read(self, sources: Sequence[tuple[Source, int | None]], show_progress: bool | None) -> Iterator[Block]:
        """Yield the good rows of all sources. Each source comes with its split, or None if its rows are to be split.

        A block is valid until the next one is read.
        """
        bytes_before = 0
        with Progress("reading", sum(source.size for source, _ in sources), show_progress) as progress:
            for source, split in sources:
                first = self.rows_read
                for block in self._read_source(source, split):
                    if len(block):
                        yield block
                    progress.update(bytes_before + self._bytes_read, self.rows_read)
                if self.rows_read == first:
                    raise Fm2Error(f"prepare: {source} has no rows")
                bytes_before += self._bytes_read

    def _read_source(self, source: Source, split: int | None) -> Iterator[Block]:
        return self._read_frame(source, split) if isinstance(source, FrameSource) else self._read_text(source, split)

    def _read_text(self, source: TextFile, split: int | None) -> Iterator[Block]:
        positions = source.positions(self._schema.source_columns)
        for chunk in read_chunks(source, "prepare"):
            block = self.collector.read_text(chunk.text, source.format, positions, chunk.last)
            chunk.consumed = block.consumed
            chunk.lines = block.lines
            self._bytes_read = chunk.bytes_read
            yield self._good_rows(block, source, split, chunk.line)

    def _read_frame(self, source: FrameSource, split: int | None) -> Iterator[Block]:
        rows_read = 0
        for batch, positions in source.batches(self._schema.source_columns):
            for start in range(0, batch.rows, BATCH_ROWS):
                count = min(BATCH_ROWS, batch.rows - start)
                with native_errors(f"prepare: {source}"):  # an unsupported column type, such as nested lists
                    block = self.collector.read_frame(batch, start, count, positions)
                rows_read += count
                self._bytes_read = rows_read * ROW_BYTES
                yield self._good_rows(block, source, split, rows_read - count + 1)

    def _good_rows(self, block: _native.Block, source: Source, split: int | None, start: int) -> Block:
        """Remove and report the bad rows of a block that begins at the line or row ``start`` of its source."""
        dropped = self._report_bad_rows(block, source, start)
        first = self.rows_read
        self.rows_read += block.rows
        schema = self._schema
        labels = block.clicks if schema.impressions else block.labels
        impressions = block.impressions if schema.impressions else None
        weights = block.weights if schema.weight else None
        arrays = enumerate(self.collector.lists(block))
        lists = {index: Lists(*array) for index, array in arrays if array is not None}
        if not len(dropped):
            return Block(block.codes, lists, labels, block.times, first, dropped, split, impressions, weights)
        good = np.delete(np.arange(block.rows), dropped)
        codes = np.delete(block.codes, dropped, axis=1)
        lists = {index: table.take(good) for index, table in lists.items()}
        times = np.delete(block.times, dropped) if len(block.times) else block.times
        impressions = None if impressions is None else np.delete(impressions, dropped)
        weights = None if weights is None else np.delete(weights, dropped)
        return Block(codes, lists, np.delete(labels, dropped), times, first, dropped, split, impressions, weights)

    def _report_bad_rows(self, block: _native.Block, source: Source, start: int) -> NDArray[np.int64]:
        dropped: list[int] = []
        for row, field, fault, value in block.bad:
            if dropped and dropped[-1] == row:  # report one reason per row
                continue
            dropped.append(row)
            if isinstance(source, TextFile):
                place = f"line {start + self.collector.line(row)}"
                columns = len(source.names)
            else:
                place = f"row {start + row}"
                columns = 0
            reason = explain_fault(self._schema, columns, field, fault, value)
            self._bad_rows.add(str(source), place, fault, reason, self.collector.row_text(row))
        return np.array(dropped, np.int64)


@dataclass(frozen=True)
class _Stored:
    """A block in the temporary files: the number of rows, times, and values of each multi-valued field."""

    rows: int
    times: int
    values: dict[int, int]
    first: int
    dropped: NDArray[np.int64]
    split: int | None


class StoredRows(Protocol):
    """Rows that can be read as often as needed, in order, one block at a time."""

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        """Yield the blocks with the codes and lists of all fields, or of these fields only, which reads less."""


class ScratchRows:
    """Blocks in temporary files, written once. ``first_row`` is the number of the first row in the log."""

    def __init__(self, directory: Path, fields: int) -> None:
        self._fields = fields
        self._paths = [directory / f"scratch.{name}" for name in ("codes", "targets", "times", "lists")]
        self._targets: list[np.dtype[Any] | None] = []  # the types of labels, impressions and weights
        self._stored: list[_Stored] = []
        self.rows = 0
        self.first_row = 0

    def record(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Write blocks as they pass through."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in self._paths]
            for block in blocks:
                targets = (block.labels, block.impressions, block.weights)
                self._targets = [None if values is None else values.dtype for values in targets]
                lists = [
                    values
                    for table in block.lists.values()
                    for values in (table.offsets, table.ids, table.value_weights())
                ]
                for file, arrays in zip(files, ((block.codes,), targets, (block.times,), lists), strict=True):
                    for values in arrays:
                        if values is not None:
                            file.write(np.ascontiguousarray(values).data)
                value_counts = {index: len(table.ids) for index, table in block.lists.items()}
                stored = _Stored(len(block), len(block.times), value_counts, block.first, block.dropped, block.split)
                self._stored.append(stored)
                self.rows += len(block)
                yield block

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        """Yield the blocks with the codes and lists of all fields, or of these fields only, which reads less."""
        start = 0
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in self._paths]
            codes_file, targets_file, times_file, lists_file = files
            for stored in self._stored:
                codes = self._read_codes(codes_file, start, stored.rows, fields)
                lists = {}
                for index, count in stored.values.items():
                    types = {np.int64: stored.rows + 1, np.int32: count, np.float32: count}  # offsets, ids, weights
                    if fields is None or index in fields:
                        lists[index] = Lists(*(np.fromfile(lists_file, type, n) for type, n in types.items()))
                    else:
                        lists_file.seek(sum(n * np.dtype(type).itemsize for type, n in types.items()), os.SEEK_CUR)
                labels, impressions, weights = (
                    None if dtype is None else np.fromfile(targets_file, dtype, stored.rows) for dtype in self._targets
                )
                assert labels is not None
                times = np.fromfile(times_file, np.int64, stored.times)
                place = (self.first_row + stored.first, stored.dropped, stored.split)
                yield Block(codes, lists, labels, times, *place, impressions, weights)
                start += self._fields * stored.rows

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
        for path in self._paths:
            path.unlink(missing_ok=True)
