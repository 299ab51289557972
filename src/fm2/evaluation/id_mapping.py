"""Translate the ids of one dataset to those of a model that was trained on another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.rows import EncodedRows
from fm2.data.trees import same_trees
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.field import DEFAULT_MIN_COUNT, Field
from fm2.schema import Schema


@dataclass(frozen=True)
class IdMap:
    """A model's id for each id of a dataset, field by field, and the fields that each cross combines."""

    ids: Sequence[NDArray[np.int32]]
    parts: Sequence[Sequence[int]] = ()


class Encoding(Protocol):
    """How values become ids: an encoder, a dataset, or the weights of a model with its vocabularies."""

    @property
    def schema(self) -> Schema:
        """The fields."""

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The values of each field."""


def _differences(names: Sequence[str], expected: Sequence[str]) -> str:
    """Name the fields that only one of two schemas has; they may also differ in their order."""
    lacking, more = (
        ", ".join(f"'{name}'" for name in left if name not in right)
        for left, right in ((expected, names), (names, expected))
    )
    found = [f"it has no field {lacking}"] * bool(lacking) + [f"the model has no field {more}"] * bool(more)
    return f": {' and '.join(found)}" if found else ", or the same in another order"


def check_same_encoding(operation: str, model: Encoding, dataset: Dataset, path: Path) -> None:
    """Raise an error if a dataset reads raw values differently than the model in ``path``.

    The two may know different values, but fields, missing values, transformations, hashes and buckets must agree.
    """
    if dataset.schema.names != model.schema.names:
        differences = _differences(dataset.schema.names, model.schema.names)
        raise Fm2Error(
            f"{operation}: {dataset.path} has other fields than the model in {path}{differences}; prepare it like "
            "the dataset that the model was trained on (fm2 prepare --like)"
        )
    if set(dataset.schema.missing) != set(model.schema.missing):
        raise Fm2Error(f"{operation}: {dataset.path} has other missing values than the model in {path}")
    fields = zip(model.schema.fields, dataset.schema.fields, strict=True)
    vocabularies = zip(model.vocabularies, dataset.vocabularies, strict=True)
    for (model_field, field), (known, vocabulary) in zip(fields, vocabularies, strict=True):
        same_field = _ignoring_counts(model_field) == _ignoring_counts(field)
        same_buckets = np.array_equal(known.boundaries, vocabulary.boundaries)
        same_buckets &= same_trees(known.trees, vocabulary.trees)
        if not (same_field and same_buckets and known.hashed == vocabulary.hashed):
            raise Fm2Error(
                f"{operation}: {dataset.path} reads, hashes or buckets the field '{field.name}' differently than the "
                f"model in {path}; prepare the rows like the dataset that the model was trained on (fm2 prepare --like)"
            )


def _ignoring_counts(field: Field) -> Field:
    """Return a field with default counts: values and boundaries are compared on their own."""
    return dataclasses.replace(field, min_count=DEFAULT_MIN_COUNT, buckets=0)


def make_id_map(model: Encoding, dataset: Dataset, path: Path, operation: str = "evaluate") -> IdMap | None:
    """Return the model's id for each id of a dataset, field by field, or None if all ids are the same.

    Values that the model in ``path`` does not know become id 0, unknown.
    """
    check_same_encoding(operation, model, dataset, path)
    vocabularies = list(zip(model.vocabularies, dataset.vocabularies, strict=True))
    if all(_begins_with(known, vocabulary) for known, vocabulary in vocabularies):
        return None
    ids = [np.maximum(vocabulary.ids_in(known), 0) for known, vocabulary in vocabularies]
    return IdMap(
        ids,
        [parts if field.cross else () for field, parts in zip(model.schema.fields, model.schema.parts, strict=True)],
    )


def _begins_with(known: Vocabulary, vocabulary: Vocabulary) -> bool:
    """Return whether every value of a vocabulary has the same id in ``known``, which may have more."""
    same_ends = np.array_equal(known.ends[: len(vocabulary.ends)], vocabulary.ends)
    return same_ends and np.array_equal(known.data[: len(vocabulary.data)], vocabulary.data)


def map_ids(rows: EncodedRows, id_map: IdMap | None) -> EncodedRows:
    """Translate the ids of rows, including those in lists; without a map they stay the same.

    A cross is unknown if the model does not know one of its parts, even if the cross is hashed.

    >>> from fm2.data.rows import Lists
    >>> rows = EncodedRows(np.array([[1, 0]], np.int32), {1: Lists.of([[2, 1, 2]])})
    >>> mapped = map_ids(rows, IdMap([np.array([0, 7]), np.array([0, 5, 3])]))
    >>> mapped.ids.tolist(), mapped.lists[1].ids.tolist()
    ([[7, 0]], [3, 5, 3])
    """
    if id_map is None:
        return rows
    _check_not_negative(rows.ids)
    rows = rows.compact() if rows.lists else rows  # the lists of all other rows need no translation
    lists = {
        index: dataclasses.replace(table, ids=_translate(table.ids, id_map.ids[index]))
        for index, table in rows.lists.items()
    }
    columns = [column if field in lists else id_map.ids[field][column] for field, column in enumerate(rows.ids.T)]
    for cross, parts in enumerate(id_map.parts):
        for part in parts:
            columns[cross] = np.where(columns[part] > 0, columns[cross], 0)
    return EncodedRows(np.stack(columns, axis=1), lists)


def _translate(ids: NDArray[np.int32], new_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    _check_not_negative(ids)
    return new_ids[ids]


def _check_not_negative(ids: NDArray[np.int32]) -> None:
    if ids.min(initial=0) < 0:
        raise IndexError("an id is negative")
