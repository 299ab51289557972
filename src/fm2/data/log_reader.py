"""The first pass of prepare: read the sources once, and replace values with codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.bad_rows import BadRows, explain_fault
from fm2.data.encoder import native_fields
from fm2.data.scratch_rows import Block
from fm2.data.sources import BATCH_ROWS, ROW_BYTES, FrameSource, Source
from fm2.data.text_files import TextFile, read_chunks
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.schema import Field, Schema


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
                try:
                    block = self.collector.read_frame(batch, start, count, positions)
                except ValueError as error:  # an unsupported column type, such as lists
                    raise Fm2Error(f"prepare: {source}: {error}") from error
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
