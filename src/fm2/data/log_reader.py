"""The first pass of prepare: read the sources once, replace values with codes, and keep these in temporary files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.bad_rows import BadRows, explain_fault
from fm2.data.encoder import native_fields
from fm2.data.row_inputs import native_errors
from fm2.data.sources import BATCH_ROWS, ROW_BYTES, FrameSource, Source
from fm2.data.text_files import TextFile, read_chunks
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.schema import Field, Schema


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


class LogReader:
    """Read sources one after the other. ``collector`` holds the values of all codes."""

    def __init__(self, schema: Schema, time: Field | None, bad_rows: BadRows, threads: int) -> None:
        self._schema = schema
        self._bad_rows = bad_rows
        self._rows_read = 0
        self._bytes_read = 0  # of the current source
        columns = schema.source_columns
        self.collector = _native.Collector(
            native_fields(schema, columns),
            label=0,
            time=columns.index(time.column) if time else None,
            time_format=(time and time.format) or "",
            missing=list(schema.missing),
            threads=threads,
        )

    def read(self, sources: Sequence[tuple[Source, int | None]], show_progress: bool | None) -> Iterator[Block]:
        """Yield the good rows of all sources. Each source comes with its split, or None if its rows are to be split.

        A block is valid until the next one is read.
        """
        bytes_before = 0
        with Progress("reading", sum(source.size for source, _ in sources), show_progress) as progress:
            for source, split in sources:
                first = self._rows_read
                for block in self._read_source(source, split):
                    if len(block):
                        yield block
                    progress.update(bytes_before + self._bytes_read, self._rows_read)
                if self._rows_read == first:
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
                with native_errors(f"prepare: {source}"):  # an unsupported column type, such as lists
                    block = self.collector.read_frame(batch, start, count, positions)
                rows_read += count
                self._bytes_read = rows_read * ROW_BYTES
                yield self._good_rows(block, source, split, rows_read - count + 1)

    def _good_rows(self, block: _native.Block, source: Source, split: int | None, start: int) -> Block:
        """Remove and report the bad rows of a block that begins at the line or row ``start`` of its source."""
        dropped = self._report_bad_rows(block, source, start)
        first = self._rows_read
        self._rows_read += block.rows
        if not len(dropped):
            return Block(block.codes, block.labels, block.times, first, dropped, split)
        codes = np.delete(block.codes, dropped, axis=1)
        times = np.delete(block.times, dropped) if len(block.times) else block.times
        return Block(codes, np.delete(block.labels, dropped), times, first, dropped, split)

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
