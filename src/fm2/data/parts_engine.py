"""Prepare a log in parts: the same functions as in one process, mapped over groups of files.

The passes that number things in the order of the whole log run in this process: crosses, trees, multi-valued fields and
the search for the limits of a split by time.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data import part_tasks
from fm2.data.bad_rows import BadRows
from fm2.data.counting import Assign, Counts, FieldIds, Values, with_min_counts
from fm2.data.derived import DerivedEncoder
from fm2.data.engine import Reading
from fm2.data.list_files import NewLists
from fm2.data.log_reader import Block
from fm2.data.manifest import PARTS
from fm2.data.numbers import NumberCodes
from fm2.data.part_rows import PartFiles, PartRows
from fm2.data.split_files import Written
from fm2.data.value_shards import MergedValues, merge_shard, write_ids

MOST_PARTS = 256  # every part has up to 12 files

# Calls a function once for each of the last arguments, with the same first arguments, and returns the results in order.
# The names say what the calls are for.
Map = Callable[[Callable[..., Any], Sequence[Any], Sequence[Sequence[Any]], Sequence[str]], list[Any]]


class PartsEngine:
    """Passes that are tasks: one for every part of the log, or for every shard of its values."""

    def __init__(self, reading: Reading, files: PartFiles, directory: Path, run: Map, shards: int) -> None:
        groups = np.array_split(np.arange(len(files)), min(len(files), MOST_PARTS))
        self._files = [[files[index] for index in group] for group in groups]
        self._names = [
            " and ".join(dict.fromkeys(str(files[index][0]) for index in group[[0, -1]])) for group in groups
        ]
        self.parts = len(self._files)
        self._reading, self._directory, self._run, self._shards = reading, directory, run, shards
        self._scratch = directory / "scratch"
        self.skipped = BadRows(directory, reading.bad_rows)
        self._parts: list[PartRows] = []
        self._counts: list[Counts] = []
        self._merged: MergedValues | None = None

    @property
    def rows(self) -> int:
        return sum(part.scratch.rows for part in self._parts)

    @property
    def values(self) -> Values:
        assert self._merged is not None
        return self._merged

    def _map(self, function: Callable[..., Any], shared: Sequence[Any], *of_parts: Sequence[Any]) -> list[Any]:
        return self._run(function, shared, list(zip(*of_parts, strict=True)), self._names)

    def read(self, assign: Assign | None) -> Counts | None:
        """Read all files. The number of a row, on which its split depends, is known only afterward."""
        directories = [self._scratch / str(number) for number in range(self.parts)]
        reading = dataclasses.replace(self._reading, known=(), progress=False)
        self._parts = self._map(part_tasks.read_part, (reading, self._shards), self._files, directories)
        first_row = 0
        for part in self._parts:
            part.scratch.first_row = first_row
            first_row += part.rows_read
            self.skipped.append(part.skipped)
        self.skipped.close()
        return None

    def count(self, assign: Assign) -> Counts:
        reading = dataclasses.replace(self._reading, known=())
        self._counts = self._map(part_tasks.count_part, (reading, self._shards, assign), self._parts)
        directories = [part.directory for part in self._parts]
        known, training_rows = self._reading.known, sum(counts.training for counts in self._counts)
        shared = with_min_counts(self._reading.schema, training_rows, bool(known)), known, directories
        shards = [(shard,) for shard in range(self._shards)]
        names = [f"shard {shard} of the values" for shard in range(self._shards)]
        self._merged = MergedValues(self._reading.schema, self._run(merge_shard, shared, shards, names))
        codes = [np.sum(of_field, axis=0) for of_field in zip(*(counts.codes for counts in self._counts), strict=True)]
        blocks = [sums for counts in self._counts for sums in counts.blocks]
        codes = [self._merged.counts.get(field, of_field) for field, of_field in enumerate(codes)]
        return Counts(blocks, sum(counts.dropped for counts in self._counts), codes)

    def sample_numbers(self, assign: Assign, fields: Sequence[int], step: int) -> NDArray[np.float32]:
        seen = _sums_before([counts.training for counts in self._counts])
        return np.concatenate(self._map(part_tasks.sample_part, (assign, fields, step), self._parts, seen), axis=1)

    def count_numbers(self, assign: Assign, numbers: NumberCodes) -> dict[int, NDArray[np.int64]]:
        if not numbers.fields:
            return {}
        reading = dataclasses.replace(self._reading, known=())
        counts = self._map(part_tasks.count_part_numbers, (reading, assign, numbers), self._parts)
        return {field: np.sum([of_part[field] for of_part in counts], axis=0) for field in numbers.fields}

    def set_ids(self, fields: list[FieldIds]) -> list[FieldIds]:
        """Give the tasks the ids of their own codes; from now on, blocks have ids instead of the codes of a part."""
        assert self._merged is not None
        owners = self._parts[0].sizes
        ids = {owner: self._merged.ids_by_shard(owner, fields[owner].ids) for owner in owners}
        self._map(write_ids, (ids,), self._parts)
        self._parts = [dataclasses.replace(part, has_ids=True) for part in self._parts]
        return [
            dataclasses.replace(
                field,
                ids=np.arange(len(field.vocabulary), dtype=np.int32),
                dropped=field.dropped + self._merged.dropped[index],
            )
            if index in self._merged.dropped
            else field
            for index, field in enumerate(fields)
        ]

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        for part in self._parts:
            yield from part.blocks(fields)

    def write(
        self, assign: Assign, fields: Sequence[FieldIds], numbers: NumberCodes, derived: DerivedEncoder
    ) -> Written:
        ids_of = [field.ids for field in fields]
        lists = NewLists(self._directory, self._reading.schema, ids_of, self._reading.threads)
        if lists.fields:
            for part in self._parts:
                part_tasks.number_lists(part, assign, numbers, lists, self._reading.threads)
        rows = [counts.split_rows for counts in self._counts]
        starts = list(zip(*(_sums_before(of_split) for of_split in zip(*rows, strict=True)), strict=True))
        names = [f"{PARTS}/{number}/" if self.parts > 1 else "" for number in range(self.parts)]
        reading = dataclasses.replace(self._reading, known=())
        written = self._map(
            part_tasks.write_part,
            (reading, assign, ids_of, numbers, derived),
            self._parts,
            [self._directory / name for name in names],
            rows,
            starts if self.parts > 1 else [None],
        )
        return Written.of_parts(
            [
                dataclasses.replace(part, files={name + file: entry for file, entry in part.files.items()})
                for name, part in zip(names, written, strict=True)
            ],
            lists,
        )

    def close(self) -> None:
        self.skipped.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _sums_before(numbers: Sequence[int]) -> list[int]:
    """Return for each number the sum of those before it.

    >>> _sums_before([3, 1, 2])
    [0, 3, 4]
    """
    sums: list[int] = (np.cumsum([0, *numbers])[:-1]).tolist()
    return sums
