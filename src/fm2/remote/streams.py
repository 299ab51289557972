"""Read remote files as streams that continue where a connection was lost."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fm2 import errors
from fm2.errors import Fm2Error, name_locations
from fm2.remote.urls import Retries, filesystem, retry, scheme_of

FIRST_BYTES = 1 << 20  # of the first request: often only the beginning of a file is needed
BLOCK_BYTES = 8 << 20  # of the others
PROGRESS_BYTES = 1 << 20  # so many bytes after a failure, the next one is the first again
# What identifies a version of a file; the names depend on the file system.
VERSIONS = ("ETag", "etag", "Content-MD5", "md5Hash", "checksum", "Last-Modified", "LastModified", "mtime", "created")


@dataclass(frozen=True)
class RemoteFile:
    """A remote file with its size, if known, and what identifies its version."""

    url: str
    size: int | None
    version: str
    fs: Any = field(repr=False, compare=False)
    path: str = field(repr=False, compare=False)

    @classmethod
    def of(cls, url: str, fs: Any, path: str, info: Mapping[str, Any]) -> RemoteFile:
        """Return the file that a file system describes."""
        version = next((str(info[name]) for name in VERSIONS if info.get(name)), "")
        size = info.get("size")
        return cls(url, None if size is None else int(size), version, fs, path)

    def __str__(self) -> str:
        return name_locations(self.url)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the file for reading."""
        return io.BufferedReader(RemoteStream(self), BLOCK_BYTES)

    @functools.cached_property
    def magic(self) -> bytes:
        """The first bytes, which tell the kind of the file; they are read once."""
        with self.open() as stream:
            return stream.read(4)

    def described_again(self) -> RemoteFile:
        """Return the file as it is now."""
        self.fs.invalidate_cache()
        return RemoteFile.of(self.url, self.fs, self.path, self.fs.info(self.path))


LogFile = Path | RemoteFile


def find_remote_files(pattern: str) -> list[RemoteFile]:
    """Return the file of this URL, or the sorted files that match a URL like ``s3://bucket/logs/*.tsv.gz``."""
    files = retry(f"cannot read {pattern}", lambda: _find(pattern))
    if not files:
        raise not_found(pattern)
    return files


def not_found(pattern: str) -> Fm2Error:
    """Return an error for a path or URL without a file, or a glob pattern without a match.

    >>> not_found("log.csv"), not_found("logs/*.csv")
    (Fm2Error('file not found: log.csv'), Fm2Error("no file matches the pattern 'logs/*.csv'"))
    """
    if _is_pattern(pattern, scheme_of(pattern)):
        return Fm2Error(f"no file matches the pattern '{pattern}'")
    return errors.not_found("", pattern)


def _is_pattern(path: str, scheme: str) -> bool:
    special = "*[" if scheme in ("http", "https") else "*?["  # ? begins the query of a web address
    return any(character in path for character in special)


def _find(pattern: str) -> list[RemoteFile]:
    fs, path = filesystem(pattern)
    fs.invalidate_cache()
    if _is_pattern(path, scheme_of(pattern)):
        prefix = pattern.removesuffix(path)
        found = {name: info for name, info in fs.glob(path, detail=True).items() if info["type"] == "file"}
        return [RemoteFile.of(prefix + name, fs, name, found[name]) for name in sorted(found)]
    info = fs.info(path)
    if info["type"] == "directory":
        raise Fm2Error(f"{pattern} is a directory; pass its files, for example {pattern.rstrip('/')}/*.csv")
    return [RemoteFile.of(pattern, fs, path, info)]


class RemoteStream(io.RawIOBase):
    """The bytes of a remote file. After an error, a new connection continues at the same byte of the same version."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._position = 0
        self._connection: Any = None
        self._lost = False
        self._requested = FIRST_BYTES
        self._since_failure = 0
        self._retries = Retries(f"cannot read {file}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._file.size is None:
            raise Fm2Error(f"cannot read {self._file}: the server does not report its size")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size or 0}[whence]
        if start + offset != self._position:
            self._disconnect()
            self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        left = len(buffer) if self._file.size is None else self._file.size - self._position
        count = min(len(buffer), left, self._requested)
        if count <= 0:
            return 0
        while True:
            try:
                data = self._connect().read(count)
                if not data and self._file.size is not None:
                    raise EOFError(f"the connection ended after {self._position:,} of {self._file.size:,} bytes")
                break
            except Exception as error:
                self._disconnect()
                self._lost, self._since_failure = True, 0
                self._retries.failed(error)
        self._requested = BLOCK_BYTES
        self._since_failure += len(data)
        if self._since_failure >= PROGRESS_BYTES:
            self._retries.succeeded()
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _connect(self) -> Any:
        """Return a connection at the current position."""
        if self._connection is None:
            if self._lost and self._file.described_again() != self._file:
                raise Fm2Error(f"cannot read {self._file}: it was replaced while it was read")
            if scheme_of(self._file.url) in ("http", "https"):
                self._connection = _open_http(self._file, self._position)
            else:
                # Without a cache, memory is bounded by the size of a request.
                self._connection = self._file.fs.open(self._file.path, "rb", cache_type="none")
                self._connection.seek(self._position)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None


def _open_http(file: RemoteFile, position: int) -> Any:
    """Open one HTTP response for the bytes from a position on."""
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={position}-"} if position else {})
    response = file.fs.open(file.path, "rb", block_size=0, size=file.size or 1, headers=headers)
    try:
        if response.r.status == 206 and _is_encoded(response):  # the range counts encoded bytes
            response.close()
            response = file.fs.open(file.path, "rb", block_size=0, size=file.size or 1)
        partial = response.r.status == 206
        _check_length(file, response, position if partial else 0)
        skipped = 0 if partial else position  # a server may ignore the range
        while skipped:
            data = response.read(min(skipped, BLOCK_BYTES))
            if not data:
                raise EOFError("the connection ended")
            skipped -= len(data)
    except BaseException:
        response.close()
        raise
    return response


def _is_encoded(response: Any) -> bool:
    return bool(response.r.headers.get("Content-Encoding", "identity") != "identity")


def _check_length(file: RemoteFile, response: Any, position: int) -> None:
    length = response.r.headers.get("Content-Length")
    if length is None or file.size is None or _is_encoded(response):
        return
    if int(length) + position != file.size:
        sizes = f"{int(length) + position:,} and {file.size:,} bytes"
        raise Fm2Error(f"cannot read {file}: the server reports different sizes ({sizes})")
