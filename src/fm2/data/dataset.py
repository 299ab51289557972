"""A prepared dataset: encoded rows in memory-mapped files, and the vocabularies to encode more rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fm2.data.encoder import Encoder
from fm2.data.list_files import open_lists
from fm2.data.manifest import MANIFEST, array_files, negative_rate, read_manifest
from fm2.data.npy import open_parts
from fm2.data.rows import EncodedRows, Lists
from fm2.data.splits import SPLITS
from fm2.data.vocabulary import Vocabulary, load_vocabularies
from fm2.errors import Fm2Error, cannot_read
from fm2.files import checksum
from fm2.remote.paths import local_path
from fm2.schema import Schema

SCHEMA = "schema.toml"
VOCABULARIES = "vocabularies.npz"


@dataclass(frozen=True)
class Split:
    """The rows of one split: ids (rows × fields, numbered per field), labels, and row numbers in the log.

    The id of a multi-valued field is the number of one of its ``lists``, which all splits share. If the schema has
    impressions, the labels are click rates, otherwise 0 or 1. ``weights`` are the row weights times the impressions;
    None means that every row has the weight 1.
    """

    name: str
    ids: NDArray[np.int32]
    labels: NDArray[np.uint8 | np.float64]
    rows: NDArray[np.int64]
    lists: Mapping[int, Lists] = field(default_factory=dict)
    weights: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def encoded(self) -> EncodedRows:
        """The ids together with the lists of multi-valued fields."""
        return EncodedRows(self.ids, self.lists)


def label_type(schema: Schema) -> type[np.uint8 | np.float64]:
    """Return the type of the labels: 0 or 1, or a click rate."""
    return np.float64 if schema.impressions else np.uint8


def is_weighted(schema: Schema) -> bool:
    """Return whether the rows have weights or count several impressions."""
    return bool(schema.weight or schema.impressions)


class Dataset:
    """A directory that :func:`fm2.prepare` wrote. Its arrays are memory-mapped, so opening it is fast.

    An array may consist of several files, the parts of the dataset, which are mapped as one.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.schema = Schema.load(path / SCHEMA)
        if [entry["name"] for entry in manifest["fields"]] != list(self.schema.names):
            raise Fm2Error(f"{path} is damaged: {MANIFEST} and {SCHEMA} have different fields")
        self._verified = False

    @classmethod
    def open(cls, path: str | Path) -> Dataset:
        """Open a prepared dataset. Check that all files exist and have the right size."""
        path = local_path(path)
        return cls(path, read_manifest(path))

    @classmethod
    def of(cls, data: Dataset | str | Path) -> Dataset:
        """Return ``data`` itself, or open the dataset at this path."""
        return data if isinstance(data, Dataset) else cls.open(data)

    def verify(self) -> None:
        """Read every file and compare its checksum with the manifest."""
        for name, entry in self.manifest["files"].items():
            if checksum(self.path / name) != entry["sha256"]:
                raise Fm2Error(f"{self.path} is damaged: the checksum of {name} does not match")
        self._verified = True

    def verify_once(self) -> None:
        """Verify the dataset, unless this object has done so before."""
        if not self._verified:
            self.verify()

    def split(self, name: str) -> Split:
        """Return the rows of "train", "validation" or "test"."""
        if name not in SPLITS:
            raise Fm2Error(f"unknown split '{name}'; choose one of {', '.join(SPLITS)}")
        self._check_unchanged()
        ids, labels, rows = (self._array(name, part) for part in ("ids", "labels", "rows"))
        consistent = ids.shape == (len(labels), len(self.schema.fields)) and labels.shape == rows.shape == (len(ids),)
        types = [np.int32, label_type(self.schema), np.int64]
        weights = self._array(name, "weights") if is_weighted(self.schema) else None
        if weights is not None:
            consistent = consistent and weights.shape == rows.shape and weights.dtype == np.float32
        if not consistent or [array.dtype for array in (ids, labels, rows)] != types:
            raise Fm2Error(f"{self.path} is damaged: the arrays of the split '{name}' are inconsistent")
        if len(labels) and not 0 <= labels.min() <= labels.max() <= 1:  # also if one is not a number
            raise Fm2Error(f"{self.path} is damaged: the split '{name}' has labels that are not between 0 and 1")
        return Split(name, ids, labels, rows, self.lists, weights)

    def _array(self, split: str, part: str) -> Any:
        try:
            return open_parts([self.path / name for name in array_files(self.manifest, f"{split}/{part}.npy")])
        except (OSError, ValueError) as error:
            raise Fm2Error(f"{self.path} is damaged: {split}/{part}.npy is not a valid array") from error

    def _check_unchanged(self) -> None:
        """Raise an error if the directory was replaced, so that its files cannot be mixed with loaded ones."""
        if read_manifest(self.path) != self.manifest:
            raise Fm2Error(f"{self.path} has been replaced since it was opened; open it again")

    @functools.cached_property
    def lists(self) -> dict[int, Lists]:
        """The lists of multi-valued fields, which the rows of all splits refer to."""
        return open_lists(self.path, self.schema, self.manifest["files"])

    @functools.cached_property
    def train(self) -> Split:
        """The training rows."""
        return self.split("train")

    @functools.cached_property
    def validation(self) -> Split:
        """The validation rows, which early stopping and tuning use."""
        return self.split("validation")

    @functools.cached_property
    def test(self) -> Split:
        """The test rows, which only the final evaluation uses."""
        return self.split("test")

    @functools.cached_property
    def vocabularies(self) -> list[Vocabulary]:
        """The vocabulary of each field."""
        self._check_unchanged()
        vocabularies = load_vocabularies(self.path / VOCABULARIES, self.schema)
        if [len(vocabulary) for vocabulary in vocabularies] != self.field_sizes:
            raise Fm2Error(f"{self.path} is damaged: {MANIFEST} and {VOCABULARIES} have different numbers of features")
        return vocabularies

    @property
    def negative_rate(self) -> float:
        """The share of the training rows without a click that were kept."""
        return negative_rate(self.manifest)

    @property
    def field_sizes(self) -> list[int]:
        """The number of ids of each field, including the unknown id."""
        return [entry["features"] for entry in self.manifest["fields"]]

    @functools.cached_property
    def encoder(self) -> Encoder:
        """The encoder of this dataset."""
        try:
            return Encoder(self.schema, self.vocabularies)
        except ValueError as error:
            raise Fm2Error(f"{self.path} is damaged: {error}") from error

    def encode(self, rows: Any, threads: int = 0) -> NDArray[np.int32] | EncodedRows:
        """Encode rows with the vocabularies of this dataset; see :meth:`Encoder.encode`."""
        return self.encoder.encode(rows, threads)

    def decode(self, rows: NDArray[Any] | EncodedRows) -> dict[str, list[Any]]:
        """Return the values of encoded rows by field; see :meth:`Encoder.decode`."""
        return self.encoder.decode(rows)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {entry['rows']:,}" for name, entry in self.manifest["splits"].items())
        size = f"{len(self.schema.fields)} fields, {sum(self.field_sizes):,} features"
        return f"Dataset({str(self.path)!r}: {size}; {rows})"


def read_row_values(
    operation: str, kind: str, values: ArrayLike | str | Path, dataset: Dataset, dtype: DTypeLike
) -> NDArray[Any]:
    """Return one number per row of the log of a dataset, in the order of the log, from an array or an .npy file.

    ``Split.rows`` has the indices of a split's rows. Errors name the ``operation`` and the ``kind`` of values.
    """
    path = values if isinstance(values, str | Path) else None
    try:
        loaded = values if path is None else np.load(local_path(path), mmap_mode="r", allow_pickle=False)
        array: NDArray[Any] = np.asarray(loaded, dtype=dtype)
    except OSError as error:
        raise cannot_read(f"{operation}: {kind}", error.filename, error) from error
    except (ValueError, TypeError, EOFError) as error:
        problem = "expected an array of numbers" if path is None else f"{path} is not an .npy file of numbers"
        raise Fm2Error(f"{operation}: {kind}: {problem}") from error
    if array.ndim != 1:
        raise Fm2Error(f"{operation}: {kind}: expected one number per row, got the shape {list(array.shape)}")
    splits = (dataset.train, dataset.validation, dataset.test)
    least = max((int(split.rows.max()) + 1 for split in splits if len(split)), default=0)
    if min((int(split.rows.min()) for split in splits if len(split)), default=0) < 0:
        raise Fm2Error(f"{dataset.path} is damaged: row numbers are negative")
    left_out = dataset.manifest["bad_rows"]["count"] + dataset.manifest["settings"].get("dropped_rows", 0)
    most = sum(len(split) for split in splits) + left_out
    if not least <= len(array) <= most:
        raise Fm2Error(f"{operation}: {kind}: expected {most:,} numbers, one per row of the log, got {len(array):,}")
    return array
