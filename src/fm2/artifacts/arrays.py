"""Arrays and plain values in one safetensors file, which appears whole or not at all."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error, require
from fm2.files import atomic_file

Arrays = dict[str, NDArray[Any]]
Stored = Mapping[str, NDArray[Any]]
TYPES = {"float32": "F32", "int32": "I32", "int64": "I64", "uint64": "U64", "uint8": "U8", "float64": "F64"}


@dataclass(frozen=True)
class ChunkedArray:
    """A flat array of float32 that is made piece by piece as it is written: it is too large to be there twice."""

    length: int
    make: Callable[[], Iterable[NDArray[np.float32]]]

    @property
    def shape(self) -> tuple[int]:
        """The shape of the whole."""
        return (self.length,)

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """The type of all pieces."""
        return np.dtype(np.float32)


Saved = Mapping[str, NDArray[Any] | ChunkedArray]


def save_arrays(path: Path, arrays: Saved, values: dict[str, Any]) -> None:
    """Write arrays, and beside them, in the file's header, values that JSON can hold.

    The format is safetensors': the header's length, the header, the arrays. Its own library cannot write in pieces.
    """
    header: dict[str, Any] = {"__metadata__": {"fm2": json.dumps(values)}}
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)  # so that all of them are aligned
    end = 0
    for name, array in ordered:
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with atomic_file(path) as partial, partial.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, array in ordered:
                for piece in array.make() if isinstance(array, ChunkedArray) else [array]:
                    file.write(np.ascontiguousarray(piece).data)
    except OSError as refused:
        raise Fm2Error(f"train: {path} could not be written: {refused.strerror}; what was there is whole") from refused


class _File(Mapping[str, NDArray[Any]]):
    """The arrays of an open file, each read when it is asked for."""

    def __init__(self, file: Any) -> None:
        self._file, self._names = file, list(file.keys())

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        array: NDArray[Any] = self._file.get_tensor(name)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[tuple[Stored, dict[str, Any]]]:
    """Open what :func:`save_arrays` wrote: the arrays, and the values beside them.

    Whatever is wrong with the file, or with what is made of it, becomes one clear error.
    """
    safetensors = require("safetensors", "train", "reading a model")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            yield _File(file), json.loads((file.metadata() or {})["fm2"])
    except FileNotFoundError as missing:
        raise Fm2Error(f"there is no {path}") from missing
    except (safetensors.SafetensorError, *_DAMAGES) as wrong:
        raise Fm2Error(f"{path} is damaged, or not a file of fm2's: {wrong}") from wrong


_DAMAGES = (
    OSError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    MemoryError,
    OverflowError,
    RecursionError,
    RuntimeError,
)


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read all that :func:`save_arrays` wrote."""
    with open_arrays(path) as (arrays, values):
        return dict(arrays), values
