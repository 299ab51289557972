"""Open .npy files, which may be damaged: nothing is allocated before the header is known to match the file."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_array(path: Path) -> NDArray[Any]:
    """Map an array into memory; raise ValueError or OSError if the file is not a complete .npy file."""
    with path.open("rb") as file:
        shape, dtype, offset = _read_header(file, path.stat().st_size)
    if 0 in shape:  # an empty array cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


def read_array(content: bytes) -> NDArray[Any]:
    """Return the array in the content of a .npy file; raise ValueError if it is not complete."""
    shape, dtype, offset = _read_header(io.BytesIO(content), len(content))
    return np.frombuffer(content, dtype, offset=offset).reshape(shape)


def _read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return the shape and type of an array and where its data begin."""
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"unsupported version {version} of the .npy format")
    try:
        shape, fortran_order, dtype = HEADERS[version](file)
    except Exception as error:  # NumPy reads the header with the tokenizer of Python, which raises its own errors
        raise ValueError("the header is damaged") from error
    if dtype.hasobject or fortran_order or min(shape, default=0) < 0:
        raise ValueError(f"unsupported array: {dtype} {list(shape)}")
    if size != file.tell() + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"a file of {size} bytes cannot contain {dtype} {list(shape)}")
    return shape, dtype, file.tell()
