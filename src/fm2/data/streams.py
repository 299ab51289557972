"""Bytes out of files, whatever packed them."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from fm2.errors import Fm2Error, require

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PAR1": "parquet"}


def packing(path: Path) -> str:
    """Tell by a file's first bytes, not by its name, how it is packed: "plain", "gzip", "zstd" or "parquet"."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as refused:
        raise Fm2Error(f"cannot read {path}: {refused.strerror}") from refused
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), "plain")


class _ZstdFile(io.RawIOBase):
    """Unpacks zstd frames one after the other; unlike zstandard's own reader it notices a file that is cut short."""

    def __init__(self, file: IO[bytes]) -> None:
        zstandard = require("zstandard", "train", "reading .zst files")
        self._file, self._error, self._packed = file, zstandard.ZstdError, b""
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._unpacked = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked:
            packed = self._packed or self._file.read(1 << 18)
            if not packed and self._frame is None:
                return 0
            if not packed:
                raise EOFError("it ends within a frame")
            self._frame = self._frame or self._new_frame()
            try:
                self._unpacked = memoryview(self._frame.decompress(packed))
            except self._error as wrong:
                raise EOFError(str(wrong)) from wrong
            self._packed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        count = min(len(buffer), len(self._unpacked))
        buffer[:count] = self._unpacked[:count]
        self._unpacked = self._unpacked[count:]
        return count


@contextlib.contextmanager
def open_stream(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file for reading, unpacked; beside it the packed file, whose position tells how far the reading is."""
    unpack: dict[str, Any] = {
        "gzip": lambda file: gzip.GzipFile(fileobj=file),
        "zstd": lambda file: io.BufferedReader(_ZstdFile(file), buffer_size=1 << 18),
    }
    kind = packing(path)
    with path.open("rb") as file:
        try:
            yield unpack[kind](file) if kind in unpack else file, file
        except (EOFError, gzip.BadGzipFile, zlib.error) as broken:
            raise Fm2Error(f"{path} is damaged or cut short: {broken}") from broken
        except OSError as failed:
            raise Fm2Error(f"{path} cannot be read: {failed.strerror or failed}") from failed


def read_into(stream: IO[bytes], buffer: memoryview) -> int:
    """Fill the buffer as far as the stream goes; tell how far that was."""
    filled = 0
    while filled < len(buffer):
        count = cast("Any", stream).readinto(buffer[filled:])
        if not count:
            break
        filled += count
    return filled


def head(path: Path, size: int = 1 << 20) -> bytes:
    """Give the first bytes of a file, unpacked."""
    buffer = bytearray(size)
    with open_stream(path) as (stream, _):
        return bytes(buffer[: read_into(stream, memoryview(buffer))])
