"""Arrays and plain values in one safetensors file, which appears whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error, needs
from fm2.storage import new_file

Arrays = dict[str, NDArray[Any]]
TYPES = {"float32": "F32", "int32": "I32", "int64": "I64", "uint64": "U64", "uint8": "U8", "float64": "F64"}


@dataclass(frozen=True)
class Pieces:
    """A flat array of float32 that is made piece by piece as it is written: it is too large to be there twice."""

    length: int
    make: Callable[[], Iterable[NDArray[np.float32]]]


Saved = Mapping[str, NDArray[Any] | Pieces]


def save_arrays(path: Path, arrays: Saved, values: dict[str, Any]) -> None:
    """Write arrays, and beside them, in the file's header, values that JSON can hold.

    The format is safetensors': the header's length, the header, the arrays. Its own library cannot write in pieces.
    """
    header: dict[str, Any] = {"__metadata__": {"fm2": json.dumps(values)}}
    end = 0
    for name, array in arrays.items():
        shape = [array.length] if isinstance(array, Pieces) else list(array.shape)
        kind = np.dtype(np.float32) if isinstance(array, Pieces) else array.dtype
        begin, end = end, end + math.prod(shape) * kind.itemsize
        header[name] = {"dtype": TYPES[kind.name], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with new_file(path) as partial, partial.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                for piece in array.make() if isinstance(array, Pieces) else [array]:
                    file.write(np.ascontiguousarray(piece).data)
    except OSError as refused:
        raise Fm2Error(f"train: {path} could not be written: {refused.strerror}; what was there is whole") from refused


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read what :func:`save_arrays` wrote."""
    safetensors = needs("safetensors", "train", "reading a model")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            values = json.loads((file.metadata() or {})["fm2"])
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118
    except FileNotFoundError as missing:
        raise Fm2Error(f"there is no {path}") from missing
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as wrong:
        raise Fm2Error(f"{path} is damaged, or not a file of fm2's: {wrong}") from wrong
