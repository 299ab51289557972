"""A prepared data set: encoded rows in memory-mapped files, and what is needed to encode more."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.encoder import Encoder
from fm2.data.splits import SPLITS
from fm2.data.vocabulary import Vocabulary, load_vocabularies
from fm2.errors import Fm2Error
from fm2.files import checksum
from fm2.schema import Schema

FORMAT, VERSION = "fm2 data set", 1
MANIFEST, SCHEMA, VOCABULARIES = "manifest.json", "schema.toml", "vocabularies.npz"


@dataclass(frozen=True)
class Split:
    """The rows of one split: ids (rows × fields, local to the field), labels, and each row's number in the log."""

    name: str
    ids: NDArray[np.int32]
    labels: NDArray[np.uint8]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


class Dataset:
    """A directory that :func:`fm2.prepare` made. Its arrays are memory-mapped: opening it reads almost nothing."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self.schema = Schema.load(path / SCHEMA)

    @classmethod
    def open(cls, path: str | Path) -> Dataset:
        """Open a prepared data set, after a look at whether its files are all there."""
        path = Path(path)
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            known = manifest["format"] == FORMAT
            fields, files, splits = len(manifest["fields"]), manifest["files"].items(), manifest["splits"]
            sizes = {name: entry["bytes"] for name, entry in files}
            shaped = fields and all(splits[name]["rows"] >= 0 for name in SPLITS) and manifest["version"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
            why = f"no readable {MANIFEST}" if path.exists() else "it is not there"
            raise Fm2Error(f"{path} is not a prepared data set ({why}); fm2 prepare makes one") from wrong
        if not known or not shaped or manifest["version"] != VERSION:
            version = manifest["version"]
            raise Fm2Error(
                f"{path} has the format '{manifest['format']}' {version}; this fm2 reads '{FORMAT}' {VERSION}"
            )
        for name, size in sizes.items():
            file = path / name
            if not file.is_file() or file.stat().st_size != size:
                raise Fm2Error(f"{path} is damaged: {name} is missing or has another size than when it was written")
        return cls(path, manifest)

    @classmethod
    def of(cls, data: Dataset | str | Path) -> Dataset:
        """Return ``data`` itself, or open the dataset at this path."""
        return data if isinstance(data, Dataset) else cls.open(data)

    def verify(self) -> None:
        """Read every file and compare its checksum."""
        for name, entry in self.manifest["files"].items():
            if checksum(self.path / name) != entry["sha256"]:
                raise Fm2Error(f"{self.path} is damaged: {name} has changed since it was written")

    def split(self, name: str) -> Split:
        """Give the rows of "train", "validation" or "test"."""
        if name not in SPLITS:
            raise Fm2Error(f"there is no split '{name}'; there are {', '.join(SPLITS)}")
        ids, labels, rows = (self._array(name, part) for part in ("ids", "labels", "rows"))
        fits = ids.shape == (len(labels), len(self.schema.fields)) and labels.shape == rows.shape == (len(ids),)
        if not fits or [str(array.dtype) for array in (ids, labels, rows)] != ["int32", "uint8", "int64"]:
            raise Fm2Error(f"{self.path} is damaged: the arrays of the split '{name}' do not fit each other")
        return Split(name, ids, labels, rows)

    def _array(self, split: str, part: str) -> NDArray[Any]:
        path = self.path / split / f"{part}.npy"
        self._check_unchanged()
        empty = self.manifest["splits"][split]["rows"] == 0  # nothing that could be mapped
        try:
            array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as wrong:
            raise Fm2Error(f"{self.path} is damaged: {split}/{part}.npy is not an array that can be mapped") from wrong
        return array

    def _check_unchanged(self) -> None:
        """Refuse to mix what is loaded already with what another run has put in its place."""
        if Dataset.open(self.path).manifest != self.manifest:
            raise Fm2Error(f"{self.path} has been replaced since it was opened; open it again")

    @functools.cached_property
    def train(self) -> Split:
        """The rows to train with."""
        return self.split("train")

    @functools.cached_property
    def validation(self) -> Split:
        """The rows to choose settings by."""
        return self.split("validation")

    @functools.cached_property
    def test(self) -> Split:
        """The rows to report."""
        return self.split("test")

    @functools.cached_property
    def vocabularies(self) -> list[Vocabulary]:
        """The features of each field."""
        self._check_unchanged()
        return load_vocabularies(self.path / VOCABULARIES, len(self.schema.fields))

    @property
    def field_sizes(self) -> list[int]:
        """How many ids each field has, the unknown one included."""
        return [entry["features"] for entry in self.manifest["fields"]]

    @functools.cached_property
    def encoder(self) -> Encoder:
        """What encodes new rows as these were."""
        return Encoder(self.schema, self.vocabularies)

    def encode(self, rows: Any, threads: int = 0) -> NDArray[np.int32]:
        """Encode new rows (dicts, a dict of columns, a polars, pandas or pyarrow table) with the same vocabularies."""
        return self.encoder.encode(rows, threads)

    def decode(self, ids: NDArray[np.integer[Any]]) -> dict[str, list[str | None]]:
        """Give the values that ids stand for: None is missing, ``<unknown>`` is id 0."""
        return self.encoder.decode(ids)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {entry['rows']:,}" for name, entry in self.manifest["splits"].items())
        return (
            f"Dataset({str(self.path)!r}: {len(self.schema.fields)} fields, {sum(self.field_sizes):,} features; {rows})"
        )
