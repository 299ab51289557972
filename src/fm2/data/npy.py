"""Open .npy files, which may be damaged: nothing is allocated before the header is known to match the file.

The parts of an array are files of their own, but mapped into memory as one array. Only whole pages can be mapped, so
the header of a part is as long as necessary for its data to have the same offset from a page as in the whole array. A
page that two parts share is copied when the array is opened; all others are read when they are used.
"""

from __future__ import annotations

import ctypes
import io
import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
PAGE = 4096  # bytes; on a machine with larger pages, parts are copied into memory


def npy_header(shape: tuple[int, ...], dtype: DTypeLike, start: int | None = None) -> bytes:
    """Return the header of a .npy file with all of an array, or with the part that starts at the row ``start``."""
    of_type = np.dtype(dtype)
    stream = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(of_type), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, fields)
    header = stream.getvalue()
    if start is None:
        return header
    padding = (start * math.prod(shape[1:]) * of_type.itemsize - len(header)) % PAGE
    size = int.from_bytes(header[8:10], "little") + padding
    return header[:8] + size.to_bytes(2, "little") + header[10:-1] + b" " * padding + b"\n"


def open_array(path: Path) -> NDArray[Any]:
    """Map an array into memory; raise ValueError or OSError if the file is not a complete .npy file."""
    with path.open("rb") as file:
        shape, dtype, offset = _read_header(file, path.stat().st_size)
    if 0 in shape:  # an empty array cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


def open_parts(paths: Sequence[Path]) -> NDArray[Any]:
    """Map the parts of an array into memory as one array; raise ValueError or OSError if a file is not complete."""
    if len(paths) == 1:
        return open_array(paths[0])
    headers = []
    for path in paths:
        with path.open("rb") as file:
            headers.append(_read_header(file, path.stat().st_size))
    (_, *rest), dtype, _ = headers[0]
    if any(list(shape[1:]) != rest or of_part != dtype for shape, of_part, _ in headers):
        raise ValueError("the parts have different types or shapes")
    rows = [shape[0] for shape, _, _ in headers]
    size = sum(rows) * math.prod(rest) * dtype.itemsize
    pages = _Pages(size)
    for path, (shape, _, offset) in zip(paths, headers, strict=True):
        pages.add(path, offset, math.prod(shape) * dtype.itemsize)
    return np.frombuffer(pages.memory, np.uint8, size).view(dtype).reshape(sum(rows), *rest)


def _round_up(size: int) -> int:
    """Return the size of whole pages of this machine."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


class _Pages:
    """A range of memory to which files are mapped one after the other."""

    def __init__(self, size: int) -> None:
        # Pages that cannot be written take no memory, so that the range may be larger than that of the machine.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = mmap.mmap(-1, _round_up(max(size, 1)), flags, mmap.PROT_READ)
        self._address = np.frombuffer(self.memory, np.uint8).ctypes.data
        self._end = 0  # of what was added so far
        self._writable = 0  # the pages of copies end here

    def add(self, path: Path, offset: int, size: int) -> None:
        """Add the data of a file from ``offset`` on."""
        begin, end = self._end, self._end + size
        first, last = -(-begin // PAGE) * PAGE, end // PAGE * PAGE  # of the whole pages
        if mmap.PAGESIZE != PAGE or (offset - begin) % PAGE or first >= last:
            first = last = end
        with path.open("rb") as file:
            if first < last:
                self._map(first, last, mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), offset + first - begin)
            for at, until in ((begin, first), (last, end)):
                file.seek(offset + at - begin)
                self._copy(file.read(until - at), at, until)
        self._end = end

    def _copy(self, data: bytes, begin: int, end: int) -> None:
        if len(data) != end - begin:
            raise ValueError("a file became shorter while it was opened")
        first, last = max(begin // mmap.PAGESIZE * mmap.PAGESIZE, self._writable), _round_up(end)
        if first < last and data:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._map(first, last, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
            self._writable = last
        ctypes.memmove(self._address + begin, data, len(data))

    def _map(self, begin: int, end: int, protection: int, flags: int, descriptor: int, offset: int) -> None:
        """Replace pages of the range."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
        map_fixed = 0x10  # which Python's module does not have
        address = self._address + begin
        if libc.mmap(address, end - begin, protection, flags | map_fixed, descriptor, offset) != address:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


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
