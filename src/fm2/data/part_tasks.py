"""What the tasks of a parallel prepare do. Each of them processes one part of the log, or one shard of its values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fm2.data import counting
from fm2.data.counting import Assign, Counts, Impressions
from fm2.data.derived import DerivedEncoder
from fm2.data.engine import LocalEngine, Reading
from fm2.data.list_files import NewLists
from fm2.data.log_reader import Block
from fm2.data.numbers import NumberCodes
from fm2.data.part_rows import PartFiles, PartRows, owners_with_values
from fm2.data.sources import open_file
from fm2.data.split_files import Written, with_number_codes, write_splits
from fm2.data.splits import DROPPED, Assignment
from fm2.data.value_shards import divide_counts, divide_values

LIST_NUMBERS = "list_numbers"


def read_part(reading: Reading, shards: int, files: PartFiles, directory: Path) -> PartRows:
    """Read the files of a part; write their rows, and the values of each shard, to temporary files."""
    schema = reading.schema
    directory.mkdir(parents=True, exist_ok=True)
    engine = LocalEngine(reading, [(open_file(path, schema), split) for path, split in files], directory)
    try:
        engine.read(None)
    finally:
        engine.skipped.close()
    sizes = {owner: engine.reader.collector.size(owner) for owner in owners_with_values(schema)}
    divide_values(engine.values, sizes, directory, shards)
    return PartRows(directory, schema, engine.scratch, engine.reader.rows_read, engine.skipped.skipped(), sizes)


def count_part(reading: Reading, shards: int, assign: Assign, part: PartRows) -> Counts:
    """Count the rows and hashes of a part; write the counts of the values of each shard to temporary files."""
    counts = counting.count_rows(part.blocks(), assign, reading.schema, part.size, **reading.counted)
    divide_counts(part, counts.codes, shards)
    in_shards = counting.fields_with_values(reading.schema)
    codes = [codes[:0] if field in in_shards else codes for field, codes in enumerate(counts.codes)]
    return dataclasses.replace(counts, codes=codes)


def sample_part(assign: Assign, fields: Sequence[int], step: int, part: PartRows, seen: int) -> NDArray[np.float32]:
    """Return the numbers of fields in every n-th training row, after those ``seen`` in earlier parts."""
    return counting.sample_numbers(part, assign, fields, step, seen)


def count_part_numbers(
    reading: Reading, assign: Assign, numbers: NumberCodes, part: PartRows
) -> dict[int, NDArray[np.int64]]:
    """Count the codes of the fields with boundaries."""
    return counting.count_numbers(part, assign, numbers, **reading.counted)


def number_lists(part: PartRows, assign: Assign, numbers: NumberCodes, lists: NewLists, threads: int) -> None:
    """Write the numbers of the lists of all rows of a part to a temporary file; equal lists have equal numbers."""
    with (part.directory / LIST_NUMBERS).open("wb") as file:
        for block in part.blocks():
            assignment, impressions = assign(block)
            kept = np.flatnonzero(assignment != DROPPED)
            encoded = with_number_codes(block, numbers, threads)
            file.write(np.ascontiguousarray(lists.of(encoded, kept, assignment, impressions)).data)


class StoredLists:
    """The numbers that :func:`number_lists` wrote."""

    def __init__(self, path: Path, fields: Sequence[int]) -> None:
        self.fields = list(fields)
        self._path = path
        self._position = 0

    def of(
        self, block: Block, rows: NDArray[np.int64], assignment: Assignment, impressions: Impressions
    ) -> NDArray[np.int32]:
        size = len(self.fields) * len(rows)
        numbers = np.fromfile(self._path, np.int32, size, offset=self._position)
        self._position += numbers.nbytes
        return numbers.reshape(len(self.fields), len(rows))


def write_part(
    reading: Reading,
    assign: Assign,
    ids_of: Sequence[NDArray[np.int32]],
    numbers: NumberCodes,
    derived: DerivedEncoder,
    part: PartRows,
    directory: Path,
    rows: Sequence[int],
    starts: Sequence[int] | None,
) -> Written:
    """Write the rows of a part; ``starts`` is the number of rows of each split in earlier parts."""
    schema = reading.schema
    directory.mkdir(parents=True, exist_ok=True)
    lists = StoredLists(
        part.directory / LIST_NUMBERS, [index for index, field in enumerate(schema.fields) if field.is_list]
    )
    arguments = assign, rows, schema, ids_of, numbers, derived, lists, reading.threads, starts
    return write_splits(directory, part.blocks(), *arguments)
