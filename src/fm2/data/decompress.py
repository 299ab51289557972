"""Open plain and compressed files (gzip, zstd) as streams of bytes."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Any, Literal

from fm2.errors import Fm2Error, require
from fm2.remote.streams import LogFile, RemoteFile

FileKind = Literal["plain", "gzip", "zstd", "parquet"]

START_BYTES = 1 << 20

MAGIC: dict[bytes, FileKind] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PAR1": "parquet"}


def file_kind(path: LogFile) -> FileKind:
    """Return the kind of a file. Its first bytes decide, not its name."""
    if isinstance(path, RemoteFile):
        start = path.magic
    else:
        try:
            with path.open("rb") as file:
                start = file.read(4)
        except OSError as error:
            raise Fm2Error(f"cannot read {path}: {error.strerror}") from error
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "plain")


def file_size(path: LogFile) -> int:
    """Return the size of a file in bytes; 0 if a server does not report it."""
    return path.size or 0 if isinstance(path, RemoteFile) else path.stat().st_size


class _ZstdFile(io.RawIOBase):
    """Decompress consecutive zstd frames. Unlike the reader of zstandard, detect a truncated file."""

    def __init__(self, file: IO[bytes]) -> None:
        zstandard = require("zstandard", "train", "reading .zst files")
        self._file = file
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._compressed = b""
        self._decompressed = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._decompressed:
            compressed = self._compressed or self._file.read(1 << 18)
            if not compressed and self._frame is None:
                return 0
            if not compressed:
                raise EOFError("the last frame is incomplete")
            self._frame = self._frame or self._new_frame()
            try:
                self._decompressed = memoryview(self._frame.decompress(compressed))
            except self._error as error:
                raise EOFError(str(error)) from error
            self._compressed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        count = min(len(buffer), len(self._decompressed))
        buffer[:count] = self._decompressed[:count]
        self._decompressed = self._decompressed[count:]
        return count


@contextlib.contextmanager
def open_stream(path: LogFile) -> Iterator[tuple[io.BufferedIOBase, IO[bytes]]]:
    """Open a file for reading; yield the decompressed stream, and the file itself, whose position is the progress.

    The stream is buffered: it returns fewer bytes than requested only at the end.
    """
    kind = file_kind(path)
    with path.open("rb") as file:
        try:
            if kind == "gzip":
                yield gzip.GzipFile(fileobj=file), file
            elif kind == "zstd":
                yield io.BufferedReader(_ZstdFile(file), buffer_size=1 << 18), file
            else:
                yield file, file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise Fm2Error(f"{path} is damaged or truncated: {error}") from error
        except OSError as error:
            raise Fm2Error(f"cannot read {path}: {error.strerror or error}") from error


def read_start(path: LogFile, size: int = START_BYTES) -> bytes:
    """Return the first bytes of a file, decompressed."""
    with open_stream(path) as (stream, _):
        return stream.read(size)
