"""The first pass: every row of every source, once, into blocks of provisional numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fm2 import _native
from fm2.data.chunks import read_chunks
from fm2.data.encoder import native_fields
from fm2.data.faults import BadRows, explain
from fm2.data.scratch import Block, Scratch
from fm2.data.sources import BATCH_ROWS, ROW_BYTES, Source, Table, TextFile
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.schema import Field, Schema


@dataclass
class Position:
    """How far the reading is: rows of the log so far, good or bad, and bytes of its files."""

    rows: int = 0
    bytes: int = 0


class LogReader:
    """Reads sources one after the other into a scratch file."""

    def __init__(self, schema: Schema, time: Field | None, bad_rows: BadRows, scratch: Scratch, threads: int) -> None:
        self._schema, self._bad_rows, self._scratch = schema, bad_rows, scratch
        self._at = Position()
        self.collector = _native.Collector(
            native_fields(schema),
            label=0,
            time=schema.source_columns.index(time.column) if time else None,
            format=(time and time.format) or "",
            missing=list(schema.missing),
            threads=threads,
        )

    def read(self, sources: list[tuple[Source, int | None]], shown: bool | None) -> None:
        """Read all sources; each comes with its split where it has one of its own."""
        with Progress("reading", sum(source.size for source, _ in sources), shown) as progress:
            for source, split in sources:
                rows_before, bytes_before = self._at.rows, self._at.bytes
                read = self._read_table(source, split) if isinstance(source, Table) else self._read_text(source, split)
                for done in read:
                    self._at.bytes = bytes_before + done
                    progress.update(self._at.bytes, self._at.rows)
                if self._at.rows == rows_before:
                    raise Fm2Error(f"prepare: {source} has no rows")

    def _read_text(self, source: TextFile, split: int | None) -> Iterator[int]:
        positions = source.positions(self._schema.source_columns)
        for chunk in read_chunks(source, "prepare"):
            found = self.collector.read_text(chunk.text, source.format, positions, chunk.last)
            self._keep(found, source, split, chunk.line)
            chunk.consumed, chunk.lines = found.consumed, found.lines
            yield chunk.done

    def _read_table(self, source: Table, split: int | None) -> Iterator[int]:
        first = 0
        for batch, positions in source.batches(self._schema.source_columns):
            for start in range(0, batch.rows, BATCH_ROWS):
                count = min(BATCH_ROWS, batch.rows - start)
                try:
                    found = self.collector.read_table(batch, start, count, positions)
                except ValueError as wrong:  # a column of lists, say
                    raise Fm2Error(f"prepare: {source}: {wrong}") from wrong
                self._keep(found, source, split, first + 1)
                first += count
                yield first * ROW_BYTES

    def _keep(self, found: _native.Block, source: Source, split: int | None, start: int) -> None:
        """Write a block to the scratch file, without its bad rows."""
        dropped: list[int] = []
        for row, field, fault, value in found.bad:
            if dropped and dropped[-1] == row:  # one reason is enough
                continue
            dropped.append(row)
            text = isinstance(source, TextFile)
            place = f"line {start + self.collector.line(row)}" if text else f"row {start + row}"
            columns = len(source.names) if isinstance(source, TextFile) else 0
            reason = explain(self._schema, columns, field, fault, value)
            self._bad_rows.add(str(source), place, fault, reason, self.collector.row_text(row))
        numbers, labels, times = found.numbers, found.labels, found.times
        if dropped:
            numbers, labels = np.delete(numbers, dropped, axis=1), np.delete(labels, dropped)
            times = np.delete(times, dropped) if len(times) else times
        block = Block(numbers, labels, times, np.empty(0, np.int64), split)
        self._scratch.append(block, self._at.rows, np.array(dropped, dtype=np.int64))
        self._at.rows += found.rows
