"""A part of a log: some of its files, read by one task. What later tasks need of it is in temporary files."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.bad_rows import SkippedRows
from fm2.data.counting import fields_with_values
from fm2.data.log_reader import Block, ScratchRows
from fm2.remote.streams import LogFile
from fm2.schema import Schema

IDS = "ids"
PartFiles = Sequence[tuple[LogFile, int | None]]  # each with its split, or None if its rows are to be split


@dataclass(frozen=True)
class PartRows:
    """The rows of a part: their codes number the values of this part alone.

    Once the vocabularies are known and :meth:`save_ids` was called, ``has_ids`` lets blocks have ids instead of codes.
    """

    directory: Path
    schema: Schema
    scratch: ScratchRows
    rows_read: int  # including bad ones
    skipped: SkippedRows
    sizes: Mapping[int, int]  # the number of codes by owner
    has_ids: bool = False

    def blocks(self, fields: Sequence[int] | None = None) -> Iterator[Block]:
        """Yield the blocks; see :class:`fm2.data.log_reader.StoredRows`."""
        blocks = self.scratch.blocks(fields)
        if not self.has_ids:
            yield from blocks
            return
        positions = {field: at for at, field in enumerate(range(len(self.schema.fields)) if fields is None else fields)}
        by_owner = load(self.directory, IDS)
        in_blocks = [field for field in fields_with_values(self.schema) if field in positions]
        ids_of = {field: by_owner[self.schema.owners[field]] for field in in_blocks}
        for block in blocks:
            lists = dict(block.lists)
            for field, ids in ids_of.items():
                if field in lists:
                    lists[field] = dataclasses.replace(lists[field], ids=ids[lists[field].ids])
                elif not self.schema.fields[field].is_list:
                    block.codes[positions[field]] = ids[block.codes[positions[field]]]
            yield dataclasses.replace(block, lists=lists)

    def save_ids(self, ids: Mapping[int, NDArray[np.int32]]) -> None:
        """Write the id of each code, by the owner of the vocabulary."""
        save(self.directory, IDS, ids)

    def size(self, field: int) -> int:
        """Return the number of codes of a field."""
        return self.sizes[self.schema.owners[field]]


def owners_with_values(schema: Schema) -> list[int]:
    """Return the fields that own the vocabularies of fields whose codes number their values."""
    return sorted({schema.owners[field] for field in fields_with_values(schema)})


def save(directory: Path, name: str, content: Any) -> None:
    """Write a temporary file for another task."""
    with (directory / f"{name}.pickle").open("wb") as file:
        pickle.dump(content, file, protocol=5)


def load(directory: Path, name: str) -> Any:
    """Return what :func:`save` wrote."""
    with (directory / f"{name}.pickle").open("rb") as file:
        return pickle.load(file)
