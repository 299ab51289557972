"""Encode rows as ids, and decode ids, with the vocabularies of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.bad_rows import explain_fault
from fm2.data.row_inputs import KeyCheck, library_errors, native_errors, normalize_rows
from fm2.data.rows import EncodedRows, ListArrays, Lists
from fm2.data.text_files import TextFile, find_columns, read_chunks
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.schema import Field, Schema


def _list_format(field: Field, positions: Mapping[str, int]) -> _native.ListFormat | None:
    if not field.multivalued:
        return None
    return _native.ListFormat(
        separator=field.separator,
        pooling=field.pooling or "",
        max_values=field.max_values,
        keep_last=field.keep == "last",
        weighted=field.weighted,
        empty_is_missing=field.empty_is_missing,
        weight_column=positions[field.weight_column] if field.weight_column else None,
    )


def native_fields(
    schema: Schema, columns: Sequence[str], boundaries: Sequence[NDArray[np.float32]] | None = None
) -> list[_native.Field]:
    """Describe the fields to the native code; ``columns`` are the columns that it reads, in order."""
    parts = schema.parts
    positions = {name: index for index, name in enumerate(columns)}
    return [
        _native.Field(
            0 if field.is_derived else positions[field.column],
            transform=field.transform or field.part or "",
            format=field.format or "",
            boundaries=[] if boundaries is None else boundaries[index].tolist(),
            hash_bits=schema.fields[owner].hash_bits,
            list=_list_format(field, positions),
            parts=list(parts[index]),
            trees=bool(field.trees),
        )
        for index, (field, owner) in enumerate(zip(schema.fields, schema.owners, strict=True))
    ]


@dataclass(frozen=True)
class EncodedChunk:
    """Encoded rows of a text file. ``cells`` returns the texts of a column, until the next chunk is read."""

    rows: EncodedRows
    cells: Callable[[int], list[str]]

    @property
    def ids(self) -> NDArray[np.int32]:
        """The ids of the rows."""
        return self.rows.ids


class Encoder:
    """Encode values as ids with a schema and its vocabularies.

    A value that the training rows do not contain, or that cannot be parsed, is unknown: it gets the id 0.

    >>> from fm2 import Field, Schema
    >>> encoder = Encoder(Schema([Field("site")], label="click"), [Vocabulary.of(["a", "b"])])
    >>> encoder.encode([{"site": "b"}, {"site": "c"}, {"site": "a"}])
    array([[2],
           [0],
           [1]], dtype=int32)
    >>> encoder.decode(np.array([[2], [0], [1]]))
    {'site': ['b', '<unknown>', 'a']}
    """

    def __init__(self, schema: Schema, vocabularies: Sequence[Vocabulary]) -> None:
        self.schema = schema
        self.vocabularies = tuple(vocabularies)
        self._columns = schema.feature_columns
        self._check_keys = KeyCheck(self._columns)
        boundaries = [vocabulary.boundaries for vocabulary in vocabularies]
        self._native = _native.Encoder(native_fields(schema, self._columns, boundaries), list(schema.missing))
        for index in sorted(range(len(schema.fields)), key=lambda index: schema.fields[index].is_derived):
            self._native.set_vocabulary(index, vocabularies[index].data, vocabularies[index].ends)
        for index, vocabulary in enumerate(vocabularies):
            if len(vocabulary.trees):
                self._native.set_trees(index, vocabulary.trees, len(vocabulary))

    def encode(self, rows: Any, threads: int = 0) -> NDArray[np.int32] | EncodedRows:
        """Encode a list of dicts, a dict of columns, or a DataFrame (polars, pandas, pyarrow) as ids, rows × fields.

        A column that is not in a dict is a missing value; a column that is not in a DataFrame is an error. The label
        and other columns are ignored. An array of ids is returned unchanged. If fields are multi-valued, or numbers
        with the transform interpolate or linear, the result is an :class:`fm2.EncodedRows` with their lists.
        """
        encoded = self.encode_rows(rows, threads)
        return encoded if encoded.lists else encoded.ids

    def encode_rows(self, rows: Any, threads: int = 0) -> EncodedRows:
        """Encode rows like :meth:`encode`; the result is always an :class:`EncodedRows`."""
        if isinstance(rows, EncodedRows):
            return rows
        rows = normalize_rows(rows, "encode")
        if isinstance(rows, np.ndarray):
            return EncodedRows(rows)
        return self._encode_dicts(rows) if isinstance(rows, list) else self._encode_frame(rows, threads)

    def _encode_dicts(self, rows: list[Any]) -> EncodedRows:
        ids = self._empty_ids(len(rows))
        self._check_keys(rows[:1], "encode")
        with native_errors("encode"):
            encoded = _with_lists(ids, self._native.encode_rows(list(self._columns), rows, ids))
        self._check_keys.pending = self._check_keys.pending and not rows
        return encoded

    def _encode_frame(self, frame: Any, threads: int) -> EncodedRows:
        parts = []
        with library_errors("encode: cannot read the DataFrame"):
            reader = _native.ArrowReader(frame)
            positions = find_columns(reader.names, self._columns, "encode: the DataFrame")
            while reader.next():
                ids = self._empty_ids(reader.rows)
                with native_errors("encode"):  # an unsupported column type, such as nested lists
                    parts.append(_with_lists(ids, self._native.encode_frame(reader, positions, threads, ids)))
        if len(parts) == 1:
            return parts[0]
        return EncodedRows.concatenate(parts) if parts else self._encode_dicts([])

    def _empty_ids(self, rows: int) -> NDArray[np.int32]:
        return np.empty((rows, len(self.schema.fields)), np.int32)

    def encode_text(self, source: TextFile, threads: int = 0) -> Iterator[tuple[EncodedChunk, int]]:
        """Encode a text file in chunks, each with the number of bytes read so far. Raise an error at a bad row."""
        positions = source.positions(self._columns)
        for chunk in read_chunks(source, "predict"):
            encoded = self._native.encode_text(chunk.text, source.format, positions, chunk.last, threads)
            for row, field, fault, value in encoded.bad:
                reason = explain_fault(self.schema, len(source.names), field, fault, value)
                raise Fm2Error(f"predict: {source} line {chunk.line + encoded.line(row)}: {reason}")
            chunk.consumed = encoded.consumed
            chunk.lines = encoded.lines
            if len(encoded.ids):
                rows = _with_lists(encoded.ids, self._native.take_lists(encoded))
                yield EncodedChunk(rows, encoded.cells), chunk.bytes_read

    def slots(self, field: int) -> bytes:
        """Return the hash table of a field, as a compiled model stores it."""
        return self._native.slots(field)

    def tree_slots(self, field: int) -> NDArray[np.uint64]:
        """Return the hash tables of the pairs of a field's trees, as a compiled model stores them."""
        return self._native.tree_slots(field, self.vocabularies[field].trees)

    def decode(self, rows: NDArray[Any] | EncodedRows) -> dict[str, list[Any]]:
        """Return the values of encoded rows by field: None is the missing value, ``<unknown>`` is id 0.

        A row has a list of values in a multi-valued field, or None if the list is missing.
        """
        encoded = EncodedRows.of(rows)
        ids = encoded.ids
        if ids.ndim != 2 or ids.shape[1] != len(self.vocabularies):
            raise Fm2Error(f"decode: expected ids of shape rows × {len(self.vocabularies)} fields, got {ids.shape}")
        return {
            field.name: self._decode_lists(index, encoded) if field.is_list else self._decode_ids(index, ids[:, index])
            for index, field in enumerate(self.schema.fields)
        }

    def _decode_ids(self, index: int, ids: NDArray[Any]) -> list[str | None]:
        vocabulary = self.vocabularies[index]
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(vocabulary):
            expected = f"between 0 and {len(vocabulary) - 1}, got {ids.min()} to {ids.max()}"
            raise Fm2Error(f"decode: ids of field '{self.schema.names[index]}' must be {expected}")
        distinct, inverse = np.unique(ids, return_inverse=True)
        texts = [vocabulary.value(int(id)) for id in distinct]
        return [texts[position] for position in inverse]

    def _decode_lists(self, index: int, rows: EncodedRows) -> list[list[str | None] | None]:
        if index not in rows.lists:
            raise Fm2Error(
                f"decode: field '{self.schema.names[index]}' is multi-valued; pass EncodedRows with its lists"
            )
        try:
            lists = rows.lists[index].take(rows.ids[:, index])
        except (IndexError, ValueError) as error:
            raise Fm2Error(f"decode: a row refers to an invalid list of field '{self.schema.names[index]}'") from error
        values = self._decode_ids(index, lists.ids)
        cells = [values[begin:end] for begin, end in itertools.pairwise(lists.offsets.tolist())]
        return [None if cell == [None] else cell for cell in cells]


def _with_lists(ids: NDArray[np.int32], lists: Sequence[ListArrays | None]) -> EncodedRows:
    return EncodedRows(ids, {index: Lists(*arrays) for index, arrays in enumerate(lists) if arrays is not None})
