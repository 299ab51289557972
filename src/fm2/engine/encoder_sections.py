"""The sections of a compiled model that encode raw rows: field types, and vocabularies as hash tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.compression.weights import Weights

TRANSFORMS = ("none", "log_square", "quantiles", "weekday", "hour")  # fm2::Transform::Kind
SLOT_BYTES = 16  # fm2::TableView::Slot


def encoder_sections(weights: Weights) -> dict[str, NDArray[Any]]:
    """Return the sections that encode raw rows."""
    schema, vocabularies = weights.schema, weights.vocabularies
    columns = schema.source_columns[1:]  # without the label
    fields = [
        (
            columns.index(field.column),
            TRANSFORMS.index(field.transform or field.part or "none"),
            field.hash_bits or 0,
            len(vocabulary.boundaries),
        )
        for field, vocabulary in zip(schema.fields, vocabularies, strict=True)
    ]
    slots = [  # a hashed field has no hash table
        _native.table_slots(vocabulary.data, vocabulary.ends) if len(vocabulary.ends) else b""
        for vocabulary in vocabularies
    ]
    counts = [
        (len(table) // SLOT_BYTES, len(vocabulary.ends), len(vocabulary.data))
        for table, vocabulary in zip(slots, vocabularies, strict=True)
    ]
    return {
        "encoder.columns": _texts(columns),
        "encoder.fields": np.array(fields, np.int32),
        "encoder.boundaries": np.concatenate([vocabulary.boundaries for vocabulary in vocabularies]).astype(np.float32),
        "encoder.formats": _texts(field.format or "" for field in schema.fields),
        "encoder.missing": _texts(schema.missing),
        "vocabulary.counts": np.array(counts, np.uint64),
        "vocabulary.slots": np.frombuffer(b"".join(slots), np.uint8),
        "vocabulary.ends": np.concatenate([vocabulary.ends for vocabulary in vocabularies]).astype(np.uint64),
        "vocabulary.bytes": np.concatenate([vocabulary.data for vocabulary in vocabularies]),
    }


def _texts(texts: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(text.encode() + b"\0" for text in texts), np.uint8)
