"""Named arrays and JSON values in one safetensors file, written atomically."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error, cannot_read, not_found, require
from fm2.files import atomic_file

Arrays = dict[str, NDArray[Any]]  # in memory
Stored = Mapping[str, NDArray[Any]]  # in an open file: an array is read when it is looked up
CHECKSUM = "sha256"  # in the metadata: that of the whole file, in which its own place has zeros
HEADER_START = f'{{"__metadata__": {{"{CHECKSUM}": "'.encode()
OLDER_HEADER_START = b'{"__metadata__": {"fm2": '  # without a checksum
NO_CHECKSUM = "0" * 64
DTYPES = {
    "float32": "F32",
    "int32": "I32",
    "int64": "I64",
    "uint64": "U64",
    "uint32": "U32",
    "uint8": "U8",
    "float64": "F64",
}


@dataclass(frozen=True)
class ChunkedArray:
    """A flat float32 array whose chunks are computed while it is written, because a second copy would not fit."""

    length: int
    make: Callable[[], Iterable[NDArray[np.float32]]]
    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int]:
        """The shape of all chunks together."""
        return (self.length,)


Saved = Mapping[str, NDArray[Any] | ChunkedArray]  # to be written


def save_arrays(path: Path, arrays: Saved, values: dict[str, Any], operation: str = "train") -> None:
    """Write arrays to a file, and JSON values to its header.

    The safetensors library cannot write in chunks, so this writes the format itself: the length of the header, the
    header, the arrays.
    """
    header: dict[str, Any] = {"__metadata__": {CHECKSUM: NO_CHECKSUM, "fm2": json.dumps(values)}}
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)  # keeps every array aligned
    end = 0
    for name, array in ordered:
        begin, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start)
    try:
        with atomic_file(path) as partial, partial.open("wb") as file:
            file.write(start)
            for _, array in ordered:
                for chunk in array.make() if isinstance(array, ChunkedArray) else [array]:
                    content = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
                    digest.update(content)
                    file.write(content)
            file.seek(8 + len(HEADER_START))
            file.write(digest.hexdigest().encode())
    except OSError as error:
        reason = f"cannot write {path}: {error.strerror}; the previous file is intact"
        raise Fm2Error(f"{operation}: {reason}") from error


def verify_arrays(path: Path) -> bool:
    """Raise an error if a file's checksum does not match; return False if an older version wrote it without one."""
    place = 8 + len(HEADER_START)
    try:
        with path.open("rb") as file:
            start = file.read(place + len(NO_CHECKSUM))
            if start[8:].startswith(OLDER_HEADER_START):
                return False
            digest = hashlib.sha256(start[:place] + NO_CHECKSUM.encode())
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise cannot_read("", path, error) from error
    if start[place:] != digest.hexdigest().encode():
        raise Fm2Error(f"{path} is damaged: the checksum does not match")
    return True


class _OpenFile(Mapping[str, NDArray[Any]]):
    """The arrays of an open file."""

    def __init__(self, file: Any, source: BinaryIO) -> None:
        self._file, self._source = file, source
        self._names = dict.fromkeys(file.keys())

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        array: NDArray[Any] = self._file.get_tensor(name)
        return array

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without reading the array

    def mapped(self, name: str, mode: Literal["r", "c"]) -> NDArray[Any]:
        """Map an array into memory, from which the system can remove it again; ``c``: changes stay in memory."""
        self._source.seek(0)
        length = int.from_bytes(self._source.read(8), "little")
        entry = json.loads(self._source.read(length))[name]
        dtype = next((dtype for dtype, code in DTYPES.items() if code == entry["dtype"]), None)
        shape = tuple(entry["shape"])
        if dtype is None or not math.prod(shape) or not shape:
            return self[name]
        return np.asarray(np.memmap(self._source, dtype, mode, 8 + length + entry["data_offsets"][0], shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def map_array(arrays: Stored, name: str, mode: Literal["r", "c"] = "r") -> NDArray[Any]:
    """Return an array of an open file without reading it into memory; with mode ``c``, it can be changed.

    An array that can be changed counts against limits of memory, although it takes none until it is changed.
    """
    return arrays.mapped(name, mode) if isinstance(arrays, _OpenFile) else arrays[name]


@contextlib.contextmanager
def _open_both(safe_open: Any, path: Path) -> Iterator[tuple[Any, BinaryIO]]:
    """Open a file with safetensors and as a plain file, even if a training replaces it in between."""
    while True:
        with path.open("rb") as source, safe_open(path, framework="numpy") as file:
            if os.path.samestat(os.fstat(source.fileno()), path.stat()):
                yield file, source
                return


# What reading a damaged or hostile file, or building a model from one, may raise.
_DAMAGE = (OSError, LookupError, ValueError, TypeError, AttributeError, MemoryError, OverflowError, RuntimeError)


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[tuple[Stored, dict[str, Any]]]:
    """Open a file that :func:`save_arrays` wrote, and yield its arrays and values.

    A damaged file, or content that the body of the ``with`` statement cannot use, becomes one clear error.
    """
    safetensors = require("safetensors", "train", "reading a model")
    try:
        with _open_both(safetensors.safe_open, path) as (file, source):
            yield _OpenFile(file, source), json.loads((file.metadata() or {})["fm2"])
    except FileNotFoundError as error:
        raise not_found("", path) from error
    except (safetensors.SafetensorError, *_DAMAGE) as error:
        raise Fm2Error(f"{path} is damaged or was not written by fm2: {error}") from error
