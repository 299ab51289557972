"""A model, trained or compiled, on the rows of a data set: the one it was trained on, or one of another day."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.evaluation.metrics import evaluate
from fm2.evaluation.prediction import Predictor, large_shares
from fm2.schema import Field, Schema

LOOKED_AT, ROWS_A_TIME = 100_000, 65_536


class Known(Protocol):
    """What knows values by their ids: an encoder, or the weights of a model with it."""

    @property
    def schema(self) -> Schema:
        """How the fields are read."""

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The values of each field."""


def evaluate_split(model: Predictor, dataset: Dataset | str | Path, split: str = "test") -> dict[str, Any]:
    """Measure a model on a split of a data set.

    Of another one than it was trained on, values are found again by their text; what the model does not know is unknown
    to it, and so is what the data set itself dropped as too rare. Fields that are hashed, transformed or cut into
    buckets have to be so in the same way. ``fm2 prepare --like`` sees to it, and drops nothing that the older data set
    knew.
    """
    opened = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    rows = opened.split(split)
    if len(rows) == 0:
        raise Fm2Error(f"evaluate: {opened.path} has no rows in the split '{split}'")
    ours, found = id_map(model.encoder, opened, model.path), np.empty(len(rows), np.float32)
    for begin in range(0, len(rows), ROWS_A_TIME):
        some = np.asarray(rows.ids[begin : begin + ROWS_A_TIME])
        try:
            found[begin : begin + len(some)] = model.probabilities(map_ids(some, ours))
        except IndexError as wrong:
            where = f"the rows from {begin:,} on"
            raise Fm2Error(f"evaluate: {where} of {opened.path} are damaged: {wrong}") from wrong
    return evaluate(rows.labels, found)


def mostly_unknown(model: Predictor, dataset: Dataset, split: str = "test") -> dict[str, float]:
    """Give the share of values that a model does not know, of the fields of a split where it is large."""
    ids = np.asarray(dataset.split(split).ids[:LOOKED_AT])
    ids = map_ids(ids, id_map(model.encoder, dataset, model.path))
    counts = dict(zip(model.encoder.schema.names, np.count_nonzero(ids == 0, axis=0).tolist(), strict=True))
    return large_shares(counts, len(ids))


def id_map(model: Known, dataset: Dataset, path: Path) -> list[NDArray[np.int32]] | None:
    """Give a model's ids of a data set's, field by field; None where they are the same. ``path`` is for the errors."""
    if dataset.schema.names != model.schema.names:
        raise Fm2Error(f"{dataset.path} has other fields than the model of {path}")
    if set(dataset.schema.missing) != set(model.schema.missing):
        raise Fm2Error(f"{dataset.path} has other words for a missing value than the model of {path}")
    fields = zip(model.schema.fields, dataset.schema.fields, strict=True)
    vocabularies = list(zip(model.vocabularies, dataset.vocabularies, strict=True))
    for (ours, theirs), (known, given) in zip(fields, vocabularies, strict=True):
        if not same_encoding(ours, theirs, known, given):
            raise Fm2Error(
                f"the field '{ours.name}' of {dataset.path} is read, hashed or cut into buckets otherwise than for "
                f"the model of {path}; prepare the rows with --like and the data set that it was trained on"
            )
    if all(_begins_with(known, given) for known, given in vocabularies):
        return None
    return [np.maximum(given.ids_in(known), 0) for known, given in vocabularies]


def map_ids(ids: NDArray[np.int32], ours: Sequence[NDArray[np.int32]] | None) -> NDArray[np.int32]:
    """Look ids up, field by field; those of None are the same.

    >>> map_ids(np.array([[1, 2]], np.int32), [np.array([0, 5]), np.array([0, 0, 7])])
    array([[5, 7]])
    """
    if ours is None:
        return ids
    if ids.min(initial=0) < 0:
        raise IndexError("an id is negative")
    return np.stack([own[column] for own, column in zip(ours, ids.T, strict=True)], axis=1)


def _begins_with(whole: Vocabulary, part: Vocabulary) -> bool:
    """Tell whether the values of one vocabulary have the same ids in another, which may have more."""
    ends = np.array_equal(whole.ends[: len(part.ends)], part.ends)
    return ends and np.array_equal(whole.data[: len(part.data)], part.data)


def same_encoding(one: Field, other: Field, its: Vocabulary, others: Vocabulary) -> bool:
    """Tell whether two fields read a value alike, whichever values they know."""
    alike = dataclasses.replace(one, min_count=1) == dataclasses.replace(other, min_count=1)
    return alike and its.hashed == others.hashed and np.array_equal(its.boundaries, others.boundaries)
