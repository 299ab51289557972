"""Derived fields: crosses and trees, whose ids follow from those of other fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.counting import FieldIds
from fm2.data.encoder import native_fields
from fm2.data.log_reader import Block
from fm2.data.numbers import NumberCodes
from fm2.data.rows import Lists, native_lists
from fm2.data.vocabulary import Vocabulary
from fm2.schema import Schema

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


class DerivedEncoder:
    """Compute the ids of derived fields from those of the fields they read, whose vocabularies are complete.

    ``parts`` are the fields with a column that crosses and trees read; trees read some of them as ``numbers``, and the
    ``lists`` of others.
    """

    def __init__(self, schema: Schema, vocabularies: Sequence[Vocabulary] | Mapping[int, Vocabulary]) -> None:
        self.crosses = [index for index, field in enumerate(schema.fields) if field.cross]
        self.trees = [index for index, field in enumerate(schema.fields) if field.trees]
        read = {part for parts in schema.parts for part in parts}
        self.parts = sorted(part for part in read if not schema.fields[part].is_derived)
        self._native = _native.Encoder(native_fields(schema, schema.feature_columns), [])
        self.numbers = [index for index in self.parts if schema.fields[index].has_boundaries]
        self.lists = [index for index in self.parts if schema.fields[index].multivalued]
        self._single = [index for index in self.parts if not schema.fields[index].is_list]
        self._held_out: dict[int, tuple[NDArray[np.int64], Ids]] = {}
        self._schema = schema
        self._set: dict[int, Vocabulary] = {}
        for index in self.parts:
            self.set_vocabulary(index, vocabularies[index])

    def set_vocabulary(self, field: int, vocabulary: Vocabulary) -> None:
        """Set the vocabulary of a part or a cross."""
        self._set[field] = vocabulary
        self._native.set_vocabulary(field, vocabulary.data, vocabulary.ends)

    def set_trees(self, field: int, vocabulary: Vocabulary) -> None:
        """Set the trees of a field, after the vocabularies of all fields that they read."""
        self._set[field] = vocabulary
        self._native.set_trees(field, vocabulary.trees, len(vocabulary))

    def set_held_out(self, field: int, rows: NDArray[np.int64], ids: Ids) -> None:
        """Set the ids of a tree field for rows that its trees were fitted to; ``rows`` are their sorted numbers."""
        self._held_out[field] = (rows, ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._schema, self._set, self._held_out)

    def part_numbers(self, block: Block) -> dict[int, Floats]:
        """Return the numbers of a block that has the codes of the parts alone; the codes of numbers are their bits."""
        return {index: block.codes[self.parts.index(index)].view(np.float32) for index in self.numbers}

    def part_lists(self, block: Block, ids_of: Sequence[Ids]) -> dict[int, Lists]:
        """Return the lists of a block with ids instead of codes; ``ids_of`` has the id of each code, by field."""
        lists = {index: block.lists[index] for index in self.lists}
        return {index: Lists(table.offsets, ids_of[index][table.ids]) for index, table in lists.items()}

    def part_ids(self, block: Block, fields: Sequence[FieldIds], numbers: NumberCodes, threads: int) -> Ids:
        """Return the ids of a block's parts, rows × all fields; the block has the codes of the parts alone.

        The id of a multi-valued part is the number of the row, and of its list.
        """
        codes: dict[int, Any] = dict(zip(self.parts, block.codes, strict=True))
        codes |= numbers.encode({index: codes[index] for index in self.numbers}, threads)[0]
        ids = np.zeros((len(block), len(fields)), np.int32)
        for index in self._single:
            ids[:, index] = fields[index].ids[codes[index]]
        ids[:, self.lists] = np.arange(len(block))[:, None]
        return ids

    def encode(
        self,
        ids: Ids,
        rows: NDArray[np.int64],
        numbers: Mapping[int, Floats],
        lists: Mapping[int, Lists],
        threads: int,
    ) -> None:
        """Write the ids of derived fields into rows of the log that have the ids of all other fields.

        ``numbers`` are those of the fields in :attr:`numbers`. Trees, once they are set, need the ``lists`` of the
        fields in :attr:`lists`, whose ids are the numbers of lists.
        """
        if self.crosses or self.trees:
            fields = ids.shape[1]
            of_fields = [numbers.get(index) for index in range(fields)]
            self._native.encode_derived(ids, of_fields, native_lists(lists, fields), threads)
        for field, (known, of_known) in self._held_out.items():
            at = np.minimum(np.searchsorted(known, rows), len(known) - 1)
            ids[:, field] = np.where(known[at] == rows, of_known[at], ids[:, field])


def _restore(
    schema: Schema, vocabularies: Mapping[int, Vocabulary], held_out: Mapping[int, tuple[NDArray[np.int64], Ids]]
) -> DerivedEncoder:
    """Return an encoder that was sent to another process."""
    encoder = DerivedEncoder(schema, vocabularies)
    for index in encoder.crosses:
        encoder.set_vocabulary(index, vocabularies[index])
    for index in encoder.trees:
        encoder.set_trees(index, vocabularies[index])
    for field, (rows, ids) in held_out.items():
        encoder.set_held_out(field, rows, ids)
    return encoder
