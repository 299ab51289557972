"""Encode rows as ids, and decode ids, with the vocabularies of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.bad_rows import explain_fault
from fm2.data.row_inputs import native_errors, normalize_rows
from fm2.data.text_files import TextFile, find_columns, read_chunks
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.schema import Schema


def native_fields(
    schema: Schema, columns: Sequence[str], boundaries: Sequence[NDArray[np.float32]] | None = None
) -> list[_native.Field]:
    """Describe the fields to the native code; ``columns`` are the columns that it reads, in order."""
    return [
        _native.Field(
            columns.index(field.column),
            transform=field.transform or field.part or "",
            format=field.format or "",
            boundaries=[] if boundaries is None else boundaries[index].tolist(),
            hash_bits=field.hash_bits,
        )
        for index, field in enumerate(schema.fields)
    ]


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
        self._columns = schema.source_columns[1:]  # encoding does not read the label
        boundaries = [vocabulary.boundaries for vocabulary in vocabularies]
        self._native = _native.Encoder(native_fields(schema, self._columns, boundaries), list(schema.missing))
        for index, vocabulary in enumerate(vocabularies):
            self._native.set_vocabulary(index, vocabulary.data, vocabulary.ends)

    def encode(self, rows: Any, threads: int = 0) -> NDArray[np.int32]:
        """Encode a list of dicts, a dict of columns, or a DataFrame (polars, pandas, pyarrow) as ids, rows × fields.

        A column that is not in a dict is a missing value; a column that is not in a DataFrame is an error. The label
        and other columns are ignored. An array of ids is returned unchanged.
        """
        rows = normalize_rows(rows, "encode")
        if isinstance(rows, np.ndarray):
            return rows
        return self._encode_dicts(rows) if isinstance(rows, list) else self._encode_frame(rows, threads)

    def _encode_dicts(self, rows: list[Any]) -> NDArray[np.int32]:
        ids = self._empty_ids(len(rows))
        with native_errors("encode"):
            self._native.encode_rows(list(self._columns), rows, ids)
        return ids

    def _encode_frame(self, frame: Any, threads: int) -> NDArray[np.int32]:
        reader = _native.ArrowReader(frame)
        positions = find_columns(reader.names, self._columns, "encode: the DataFrame")
        parts = [self._empty_ids(0)]
        while reader.next():
            parts.append(self._empty_ids(reader.rows))
            with native_errors("encode"):  # an unsupported column type, such as lists
                self._native.encode_frame(reader, positions, threads, parts[-1])
        return parts[1] if len(parts) == 2 else np.concatenate(parts)

    def _empty_ids(self, rows: int) -> NDArray[np.int32]:
        return np.empty((rows, len(self.schema.fields)), np.int32)

    def encode_text(self, source: TextFile, threads: int = 0) -> Iterator[tuple[_native.EncodedText, int]]:
        """Encode a text file in chunks, each with the number of bytes read so far. Raise an error at a bad row.

        The ``cells`` of a chunk are valid until the next chunk is read.
        """
        positions = source.positions(self._columns)
        for chunk in read_chunks(source, "predict"):
            encoded = self._native.encode_text(chunk.text, source.format, positions, chunk.last, threads)
            for row, field, fault, value in encoded.bad:
                reason = explain_fault(self.schema, len(source.names), field, fault, value)
                raise Fm2Error(f"predict: {source} line {chunk.line + encoded.line(row)}: {reason}")
            chunk.consumed = encoded.consumed
            chunk.lines = encoded.lines
            if len(encoded.ids):
                yield encoded, chunk.bytes_read

    def decode(self, ids: NDArray[np.integer[Any]]) -> dict[str, list[str | None]]:
        """Return the values of ids by field: None is the missing value, ``<unknown>`` is id 0."""
        if ids.ndim != 2 or ids.shape[1] != len(self.vocabularies):
            raise Fm2Error(f"decode: expected ids of shape rows × {len(self.vocabularies)} fields, got {ids.shape}")
        columns: dict[str, list[str | None]] = {}
        for field, vocabulary, column in zip(self.schema.fields, self.vocabularies, ids.T, strict=True):
            if len(column) and not 0 <= column.min() <= column.max() < len(vocabulary):
                expected = f"between 0 and {len(vocabulary) - 1}, got {column.min()} to {column.max()}"
                raise Fm2Error(f"decode: ids of field '{field.name}' must be {expected}")
            distinct, inverse = np.unique(column, return_inverse=True)
            texts = [vocabulary.value(int(id)) for id in distinct]
            columns[field.name] = [texts[index] for index in inverse]
        return columns
