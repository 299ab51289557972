"""New rows into ids, and ids back into values, with the vocabularies of a prepared data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.chunks import read_chunks
from fm2.data.faults import explain
from fm2.data.rows import as_table, normalize_rows
from fm2.data.sources import TextFile, find_columns
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.schema import Schema


def native_fields(schema: Schema, boundaries: Sequence[NDArray[np.float32]] | None = None) -> list[_native.Field]:
    """Describe the fields to the native part; a field's column is its place in ``schema.source_columns``."""
    places = {name: place for place, name in enumerate(schema.source_columns)}
    return [
        _native.Field(
            places[field.column],
            transform=field.transform or field.part or "",
            format=field.format or "",
            boundaries=[] if boundaries is None else boundaries[index].tolist(),
            hash_bits=field.hash_bits,
        )
        for index, field in enumerate(schema.fields)
    ]


class Encoder:
    """A schema and its vocabularies: what turns values into ids.

    Values that training did not show, and values that cannot be read, are unknown: id 0.

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
        self.schema, self.vocabularies = schema, tuple(vocabularies)
        fields = native_fields(schema, [vocabulary.boundaries for vocabulary in vocabularies])
        self._native = _native.Encoder(fields, list(schema.missing))
        for index, vocabulary in enumerate(vocabularies):
            self._native.set_vocabulary(index, vocabulary.data, vocabulary.ends)

    def encode(self, rows: Any, threads: int = 0) -> NDArray[np.int32]:
        """Encode rows as ids, rows × fields: a list of dicts, a dict of columns, a polars, pandas or pyarrow table.

        The label's column is not needed; columns that are no fields are passed over. In a dict, a column that is not
        there is a missing value; in a table, it is an error. An array of ids stays as it is.
        """
        columns = self.schema.source_columns[1:]
        given = normalize_rows(rows, "encode")
        if isinstance(given, np.ndarray):
            return given
        if isinstance(given, list | Mapping):
            given = as_table(given, columns, "encode")
        reader = _native.ArrowReader(given)
        positions = find_columns(reader.names, columns, "encode: the table")
        parts = [np.empty((0, len(self.schema.fields)), dtype=np.int32)]
        while reader.next():
            parts.append(self._encode_batch(reader, positions, threads))
        return parts[1] if len(parts) == 2 else np.concatenate(parts)

    def _encode_batch(self, reader: _native.ArrowReader, positions: list[int], threads: int) -> NDArray[np.int32]:
        ids = np.empty((reader.rows, len(self.schema.fields)), dtype=np.int32)
        try:  # column 0 of the fields is the label, which encoding does not read: any column may stand there
            self._native.encode(reader, [positions[0], *positions], threads, ids)
        except ValueError as wrong:  # a column of lists, say
            raise Fm2Error(f"encode: {wrong}") from wrong
        return ids

    def encode_text(self, source: TextFile, threads: int = 0) -> Iterator[tuple[_native.EncodedText, int]]:
        """Encode a text file in chunks, each with the number of bytes read so far. Raise an error at an invalid row.

        The ``cells`` of a chunk are valid until the next chunk is read.
        """
        positions = source.positions(self.schema.source_columns[1:])
        for chunk in read_chunks(source, "predict"):
            found = self._native.encode_text(chunk.text, source.format, [positions[0], *positions], chunk.last, threads)
            for row, field, fault, value in found.bad:
                reason = explain(self.schema, len(source.names), field, fault, value)
                raise Fm2Error(f"predict: {source} line {chunk.line + found.line(row)}: {reason}")
            chunk.consumed, chunk.lines = found.consumed, found.lines
            if len(found.ids):
                yield found, chunk.done

    def decode(self, ids: NDArray[np.integer[Any]]) -> dict[str, list[str | None]]:
        """Give the values that ids stand for, column by column: None is missing, <unknown> is id 0."""
        if ids.ndim != 2 or ids.shape[1] != len(self.vocabularies):
            raise Fm2Error(f"decode: ids are rows × {len(self.vocabularies)} fields, not {ids.shape}")
        columns: dict[str, list[str | None]] = {}
        for field, vocabulary, column in zip(self.schema.fields, self.vocabularies, ids.T, strict=True):
            if len(column) and not 0 <= column.min() <= column.max() < len(vocabulary):
                raise Fm2Error(f"decode: field '{field.name}' has the ids 0 to {len(vocabulary) - 1}")
            distinct, places = np.unique(column, return_inverse=True)
            texts = [vocabulary.value(int(id)) for id in distinct]
            columns[field.name] = [texts[place] for place in places]
        return columns
