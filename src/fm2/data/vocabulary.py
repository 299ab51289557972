"""Vocabularies: the values of a field and their ids."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.npy import read_array
from fm2.data.trees import Trees
from fm2.errors import Fm2Error
from fm2.schema import Schema

UNKNOWN = "<unknown>"
UNREADABLE_ZIP = (zipfile.BadZipFile, zlib.error, RuntimeError)  # damaged, or encrypted


@dataclass(frozen=True)
class Vocabulary:
    """The values of a field, most frequent first. Value i has the id i + 1; id 0 is the unknown value.

    ``data`` is the concatenation of all values in UTF-8, and ``ends`` is where each value ends. The missing value is
    the empty text. ``counts`` is how often each value occurs. ``boundaries`` separate the buckets of a quantile field.
    A hashed field has no values: ``hashed`` is the number of its hashes, and ``counts`` is how often each occurs.
    ``trees`` are those of a tree field, as native/include/fm2/trees.h describes them.
    """

    data: NDArray[np.uint8]
    ends: NDArray[np.uint64]
    counts: NDArray[np.int64]
    boundaries: NDArray[np.float32]
    hashed: int = 0
    trees: NDArray[np.uint32] = dataclasses.field(default_factory=lambda: np.empty(0, np.uint32))

    def __len__(self) -> int:
        """Return the number of ids, including the unknown id."""
        return 1 + (self.hashed or len(self.ends))

    def check(self) -> None:
        """Raise ValueError if the arrays, which may come from a damaged file, do not match each other."""
        ends = self.ends.astype(np.int64)
        if len(ends) and (np.diff(ends, prepend=0).min() < 0 or ends[-1] != len(self.data)):
            raise ValueError("the ends of the values do not match the data")
        if len(self.counts) not in (0, len(ends), self.hashed):
            raise ValueError("the counts do not match the values")
        self.data.tobytes().decode()

    def value(self, id: int) -> str | None:
        """Return the value of an id. None is the missing value; the values of a hashed field look like ``#7``."""
        if id == 0:
            return UNKNOWN
        if self.hashed:
            return f"#{id - 1}"
        begin = int(self.ends[id - 2]) if id > 1 else 0
        return self.data[begin : int(self.ends[id - 1])].tobytes().decode() or None

    def values(self) -> list[bytes]:
        """Return all values, beginning with that of id 1. A hashed field has none."""
        text, ends = self.data.tobytes(), self.ends.tolist()
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def ids_in(self, other: Vocabulary) -> NDArray[np.int32]:
        """Return for each id of this vocabulary the id of the same value in another vocabulary, or -1."""
        if self.hashed:
            return np.arange(len(self), dtype=np.int32)
        ids = {value: id for id, value in enumerate(other.values(), start=1)}
        return np.array([0, *(ids.get(value, -1) for value in self.values())], dtype=np.int32)

    def with_values_of(self, other: Vocabulary, keep_counts: bool = True) -> Vocabulary:
        """Append the values of another vocabulary that this one does not contain, with their counts or with 0.

        >>> Vocabulary.of(["b"], [2]).with_values_of(Vocabulary.of(["a", "b"], [3, 4])).counts.tolist()
        [2, 3]
        """
        if self.hashed:
            return self
        present = set(self.values())
        added = [
            (value.decode(), count if keep_counts else 0)
            for value, count in zip(other.values(), other.counts.tolist(), strict=True)
            if value not in present
        ]
        appended = Vocabulary.of([value for value, _ in added], [count for _, count in added])
        return dataclasses.replace(
            self,
            data=np.concatenate([self.data, appended.data]),
            ends=np.concatenate([self.ends, appended.ends + np.uint64(len(self.data))]),
            counts=np.concatenate([self.counts, appended.counts]),
        )

    @classmethod
    def of(cls, values: Sequence[str], counts: Sequence[int] = ()) -> Vocabulary:
        """Create a vocabulary from texts."""
        encoded = [value.encode() for value in values]
        return cls(
            data=np.frombuffer(b"".join(encoded), dtype=np.uint8),
            ends=np.cumsum([len(value) for value in encoded], dtype=np.uint64),
            counts=np.array(counts, dtype=np.int64),
            boundaries=np.empty(0, dtype=np.float32),
        )


ARRAYS = {
    "data": np.uint8,
    "ends": np.uint64,
    "counts": np.int64,
    "boundaries": np.float32,
    "hashed": np.int64,
    "trees": np.uint32,
}


def save_vocabularies(path: Path, vocabularies: Sequence[Vocabulary]) -> None:
    """Write the vocabularies of all fields to one .npz file. Unlike with numpy.savez, the bytes are reproducible."""
    with zipfile.ZipFile(path, "w") as archive:
        for index, vocabulary in enumerate(vocabularies):
            for name, dtype in ARRAYS.items():
                entry = zipfile.ZipInfo(f"{index}.{name}.npy")
                with archive.open(entry, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(getattr(vocabulary, name), dtype=dtype))


def load_vocabularies(path: Path, schema: Schema) -> list[Vocabulary]:
    """Read the file that :func:`save_vocabularies` wrote for the fields of a schema."""
    fields = len(schema.fields)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > path.stat().st_size:  # it is written without compression
                raise ValueError("its entries are larger than the file")
            vocabularies = [
                checked({name: read_array(archive.read(f"{index}.{name}.npy")) for name in ARRAYS})
                for index in range(fields)
            ]
        check_vocabularies(vocabularies, schema)
        return vocabularies
    except (OSError, LookupError, ValueError, TypeError, EOFError, AttributeError, *UNREADABLE_ZIP) as error:
        raise Fm2Error(f"{path} is damaged: expected {fields} vocabularies: {error}") from error


def check_vocabularies(vocabularies: Sequence[Vocabulary], schema: Schema) -> None:
    """Raise ValueError if vocabularies contradict the schema."""
    for field, owner, vocabulary in zip(schema.fields, schema.owners, vocabularies, strict=True):
        bits = schema.fields[owner].hash_bits
        if vocabulary.hashed != (1 << bits if bits else 0) or not np.isfinite(vocabulary.boundaries).all():
            raise ValueError(f"the vocabulary of the field '{field.name}' contradicts its schema")
        if bool(field.trees) != bool(len(vocabulary.trees)):
            raise ValueError(f"the field '{field.name}' should {'' if field.trees else 'not '}have trees")
        if field.trees:
            _check_scores(field.name, vocabulary.values())


def _check_scores(name: str, scores: Sequence[bytes]) -> None:
    """Raise ValueError unless the values of a tree field are the mean logits of its buckets."""
    if len(scores) > 1 and list(scores) == [b"%d" % bucket for bucket in range(len(scores))]:
        raise ValueError(f"an older version of fm2 fitted the trees of the field '{name}'; prepare the log again")
    if not np.isfinite([float(score) for score in scores]).all():
        raise ValueError(f"the buckets of the field '{name}' have values that are not finite numbers")


def checked(arrays: dict[str, Any]) -> Vocabulary:
    """Create a vocabulary from arrays of an untrusted file."""
    for name, dtype in ARRAYS.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != (0 if name == "hashed" else 1):
            raise ValueError(f"the array '{name}' has a wrong type or shape")
    vocabulary = Vocabulary(**(arrays | {"hashed": int(arrays["hashed"])}))
    vocabulary.check()
    if len(vocabulary.trees):
        Trees.of(vocabulary.trees)
    return vocabulary
