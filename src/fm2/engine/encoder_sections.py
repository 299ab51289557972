"""The encoder's sections of a compiled model: how fields are read, and the vocabularies as hash tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fm2 import _native
from fm2.compression.weights import Weights
from fm2.engine.plans import Sections
from fm2.schema import Field

KINDS = ("none", "log_square", "quantiles", "weekday", "hour")  # fm2::Transform::Kind


def encoder_sections(weights: Weights) -> Sections:
    """Give the sections from which raw rows are encoded."""
    schema, vocabularies = weights.schema, weights.vocabularies
    columns = schema.source_columns[1:]  # without the label
    entries = [
        (columns.index(field.column), _kind(field), field.hash_bits or 0, len(vocabulary.boundaries))
        for field, vocabulary in zip(schema.fields, vocabularies, strict=True)
    ]
    slots = [
        np.frombuffer(_native.table_slots(vocabulary.data, vocabulary.ends), np.uint8)
        if len(vocabulary.ends)
        else _NONE
        for vocabulary in vocabularies
    ]
    counts = [
        (len(own) // 16, len(vocabulary.ends), len(vocabulary.data))
        for own, vocabulary in zip(slots, vocabularies, strict=True)
    ]
    return {
        "encoder.columns": _texts(columns),
        "encoder.fields": np.array(entries, np.int32),
        "encoder.boundaries": np.concatenate([vocabulary.boundaries for vocabulary in vocabularies]).astype(np.float32),
        "encoder.formats": _texts(field.format or "" for field in schema.fields),
        "encoder.missing": _texts(schema.missing),
        "vocabulary.counts": np.array(counts, np.uint64),
        "vocabulary.slots": np.concatenate(slots),
        "vocabulary.ends": np.concatenate([vocabulary.ends for vocabulary in vocabularies]).astype(np.uint64),
        "vocabulary.bytes": np.concatenate([vocabulary.data for vocabulary in vocabularies]),
    }


_NONE = np.empty(0, np.uint8)


def _kind(field: Field) -> int:
    return KINDS.index(field.transform or field.part or "none")


def _texts(words: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(word.encode() + b"\0" for word in words), np.uint8)
