"""Where the passes of prepare run: in this process, or as tasks that each process a part of the log."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fm2.data import counting
from fm2.data.bad_rows import BadRows, Policy
from fm2.data.counting import Assign, Counts, FieldIds, Impressions, Values
from fm2.data.derived import DerivedEncoder
from fm2.data.list_files import NewLists
from fm2.data.log_reader import Block, LogReader, ScratchRows
from fm2.data.numbers import NumberCodes
from fm2.data.sampling import NegativeSampling
from fm2.data.sources import Source
from fm2.data.split_files import Written, write_splits
from fm2.data.splits import Assignment
from fm2.data.vocabulary import Vocabulary
from fm2.progress import Progress
from fm2.schema import Field, Schema


@dataclass(frozen=True)
class Reading:
    """How a log is read and counted. ``time`` is the field that a split by time follows."""

    schema: Schema
    time: Field | None
    known: Sequence[Vocabulary]
    bad_rows: Policy
    all_splits: bool
    threads: int
    progress: bool | None

    @property
    def counted(self) -> dict[str, Any]:
        """The settings of all functions that count rows."""
        return {"all_splits": self.all_splits, "threads": self.threads}


@dataclass(frozen=True)
class Splitting:
    """Keep the rows of a source for validation or test in its split; ``split`` the others and sample them."""

    split: Callable[[Block], Assignment]
    sampling: NegativeSampling

    def __call__(self, block: Block) -> tuple[Assignment, Impressions]:
        if block.split is not None:
            assignment = np.full(len(block), block.split, np.uint8)
        else:
            assignment = self.sampling.drop(block, self.split(block))
        return assignment, self.sampling.impressions(block, assignment)


class Engine(Protocol):
    """The passes over a log. Bad rows are ``skipped``. The result has so many ``parts``."""

    skipped: BadRows
    parts: int

    @property
    def rows(self) -> int:
        """The number of good rows."""

    @property
    def values(self) -> Values:
        """The values of the codes that :meth:`count` counts."""

    def read(self, assign: Assign | None) -> Counts | None:
        """Read the log. If ``assign`` knows the splits before all rows are read, count the rows at the same time."""

    def count(self, assign: Assign) -> Counts:
        """Count rows and codes."""

    def sample_numbers(self, assign: Assign, fields: Sequence[int], step: int) -> NDArray[np.float32]:
        """Return the numbers of fields in every n-th training row."""

    def count_numbers(self, assign: Assign, numbers: NumberCodes) -> dict[int, NDArray[np.int64]]:
        """Count the codes of the fields with boundaries."""

    def set_ids(self, fields: list[FieldIds]) -> list[FieldIds]:
        """Return fields whose ids belong to the codes of :meth:`blocks` from now on."""

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        """Yield the rows of the whole log."""

    def write(
        self, assign: Assign, fields: Sequence[FieldIds], numbers: NumberCodes, derived: DerivedEncoder
    ) -> Written:
        """Write the rows of all splits."""

    def close(self) -> None:
        """Remove temporary files."""


class LocalEngine:
    """All passes in this process."""

    parts = 1

    def __init__(self, reading: Reading, sources: Sequence[tuple[Source, int | None]], directory: Path) -> None:
        self._reading, self._sources, self._directory = reading, sources, directory
        self.scratch = ScratchRows(directory, len(reading.schema.fields))
        self.skipped = BadRows(directory, reading.bad_rows)
        self.reader = LogReader(reading.schema, reading.time, self.skipped, reading.threads)
        self._counts: Counts | None = None

    @property
    def rows(self) -> int:
        return self.scratch.rows

    @property
    def values(self) -> Values:
        return self.reader.collector

    def read(self, assign: Assign | None) -> Counts | None:
        blocks = self.scratch.record(self.reader.read(self._sources, self._reading.progress))
        if assign is not None:
            return self._count(blocks, assign)
        collections.deque(blocks, maxlen=0)  # reads and records all blocks
        return None

    def count(self, assign: Assign) -> Counts:
        return self._count(self._with_progress("counting"), assign)

    def _count(self, blocks: Iterator[Block], assign: Assign) -> Counts:
        self._counts = counting.count_rows(
            blocks, assign, self._reading.schema, self.reader.collector.size, **self._reading.counted
        )
        return self._counts

    def sample_numbers(self, assign: Assign, fields: Sequence[int], step: int) -> NDArray[np.float32]:
        return counting.sample_numbers(self.scratch, assign, fields, step)

    def count_numbers(self, assign: Assign, numbers: NumberCodes) -> dict[int, NDArray[np.int64]]:
        return counting.count_numbers(self.scratch, assign, numbers, **self._reading.counted)

    def set_ids(self, fields: list[FieldIds]) -> list[FieldIds]:
        return fields

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        return self.scratch.blocks(fields)

    def write(
        self, assign: Assign, fields: Sequence[FieldIds], numbers: NumberCodes, derived: DerivedEncoder
    ) -> Written:
        assert self._counts is not None
        schema, threads = self._reading.schema, self._reading.threads
        ids_of = [field.ids for field in fields]
        lists = NewLists(self._directory, schema, ids_of, threads)
        rows, blocks = self._counts.split_rows, self._with_progress("writing")
        written = write_splits(self._directory, blocks, assign, rows, schema, ids_of, numbers, derived, lists, threads)
        return Written.of_parts([written], lists)

    def _with_progress(self, title: str) -> Iterator[Block]:
        rows = 0
        with Progress(title, self.scratch.rows, self._reading.progress) as progress:
            for block in self.scratch.blocks():
                yield block
                rows += len(block)
                progress.update(rows, rows)

    def close(self) -> None:
        self.skipped.close()
        self.scratch.close()
