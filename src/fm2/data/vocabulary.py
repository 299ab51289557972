"""The features of a field: which value has which id."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error

UNKNOWN = "<unknown>"


@dataclass(frozen=True)
class Vocabulary:
    """The values of one field, most frequent first: value i has the id i + 1, for id 0 is unknown.

    The values are kept as one text, ``data``, with the place where each ``ends``. The missing value is the empty text.
    ``boundaries`` are those between the buckets of a field of quantiles. A hashed field has no values; ``hashed`` tells
    how many ids its hash can give, and ``counts`` how often each occurs.
    """

    data: NDArray[np.uint8]
    ends: NDArray[np.uint64]
    counts: NDArray[np.int64]
    boundaries: NDArray[np.float32]
    hashed: int = 0

    def __len__(self) -> int:
        """Count the ids, the unknown one included."""
        return 1 + (self.hashed or len(self.ends))

    def value(self, id: int) -> str | None:
        """Give the value of an id: None is the missing one; a hashed field shows the hash with a # before it.

        >>> vocabulary = Vocabulary.of(["b", ""])
        >>> [vocabulary.value(id) for id in range(3)]
        ['<unknown>', 'b', None]
        """
        if id == 0:
            return UNKNOWN
        if self.hashed:
            return f"#{id - 1}"
        begin = int(self.ends[id - 2]) if id > 1 else 0
        return self.data[begin : int(self.ends[id - 1])].tobytes().decode() or None

    def values(self) -> list[bytes]:
        """Give all values, that of id 1 first; a hashed field has none."""
        text, ends = self.data.tobytes(), self.ends.tolist()
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def ids_in(self, other: Vocabulary) -> NDArray[np.int32]:
        """Tell for each of our ids which id the value has in another vocabulary, or -1.

        >>> Vocabulary.of(["b", "a"]).ids_in(Vocabulary.of(["a", "c"])).tolist()
        [0, -1, 1]
        """
        if self.hashed:
            return np.arange(len(self), dtype=np.int32)
        ids = {value: id for id, value in enumerate(other.values(), start=1)}
        return np.array([0, *(ids.get(value, -1) for value in self.values())], dtype=np.int32)

    def with_values_of(self, other: Vocabulary, keep_counts: bool = True) -> Vocabulary:
        """Append the values of another vocabulary that are not here, with their counts or with none.

        >>> Vocabulary.of(["b"], [2]).with_values_of(Vocabulary.of(["a", "b"], [3, 4])).counts.tolist()
        [2, 3]
        """
        if self.hashed:
            return self
        known = set(self.values())
        added = [
            (value.decode(), count if keep_counts else 0)
            for value, count in zip(other.values(), other.counts.tolist(), strict=True)
            if value not in known
        ]
        more = Vocabulary.of([value for value, _ in added], [count for _, count in added])
        return dataclasses.replace(
            self,
            data=np.concatenate([self.data, more.data]),
            ends=np.concatenate([self.ends, more.ends + np.uint64(len(self.data))]),
            counts=np.concatenate([self.counts, more.counts]),
        )

    @classmethod
    def of(cls, values: Sequence[str], counts: Sequence[int] = ()) -> Vocabulary:
        """Make a vocabulary from texts.

        >>> len(Vocabulary.of(["b", "a", ""]))
        4
        """
        pieces = [value.encode() for value in values]
        return cls(
            data=np.frombuffer(b"".join(pieces), dtype=np.uint8),
            ends=np.cumsum([len(piece) for piece in pieces], dtype=np.uint64),
            counts=np.array(counts, dtype=np.int64),
            boundaries=np.empty(0, dtype=np.float32),
        )


ARRAYS = {"data": np.uint8, "ends": np.uint64, "counts": np.int64, "boundaries": np.float32, "hashed": np.int64}


def save_vocabularies(path: Path, vocabularies: Sequence[Vocabulary]) -> None:
    """Write the vocabularies of all fields to one .npz file; unlike numpy.savez, the same bytes each time."""
    with zipfile.ZipFile(path, "w") as archive:
        for index, vocabulary in enumerate(vocabularies):
            for name, kind in ARRAYS.items():
                entry = zipfile.ZipInfo(f"{index}.{name}.npy")
                with archive.open(entry, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(getattr(vocabulary, name), dtype=kind))


def load_vocabularies(path: Path, fields: int) -> list[Vocabulary]:
    """Read what :func:`save_vocabularies` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return [checked({name: file[f"{index}.{name}"] for name in ARRAYS}) for index in range(fields)]
    except (OSError, KeyError, ValueError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as wrong:
        raise Fm2Error(f"{path} is damaged: not a file of {fields} vocabularies: {wrong}") from wrong


def checked(arrays: dict[str, Any]) -> Vocabulary:
    """Make a vocabulary of arrays from a file, which anyone may have written."""
    for name, kind in ARRAYS.items():
        if arrays[name].dtype != kind or arrays[name].ndim != (0 if name == "hashed" else 1):
            raise ValueError(f"{name} is of another type or shape")
    ends, size = arrays["ends"].astype(np.int64), len(arrays["data"])
    if len(ends) and (np.diff(ends, prepend=0).min() < 0 or ends[-1] != size):
        raise ValueError("the values' ends do not fit the text")
    arrays["data"].tobytes().decode()
    return Vocabulary(**(arrays | {"hashed": int(arrays["hashed"])}))
