"""Write files and directories atomically, and decide whether an existing output may be replaced."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import glob
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from fm2.errors import Fm2Error


def check_output(
    operation: str,
    path: Path,
    kind: str,
    marker: str | None = None,
    *,
    resume: bool | None = None,
    overwrite: bool | None = None,
) -> None:
    """Raise an error unless ``operation`` may write a ``kind`` of output (a run, a dataset) to ``path``.

    Every command follows this one policy. An unused path (missing, or an empty directory) is always fine, but cannot
    be resumed. ``marker`` is a file that every directory of this kind contains; a directory without it belongs to
    someone else and is never touched. ``marker=None`` means that the output is a single file. Pass None for ``resume``
    or ``overwrite`` if the operation does not have that option.
    """
    if resume and overwrite:
        raise Fm2Error(
            f"{operation}: resume=True continues a {kind} and overwrite=True replaces it; use only one of them"
        )
    if not path.exists() or (marker and path.is_dir() and not any(path.iterdir())):
        if resume:
            raise Fm2Error(f"{operation}: no {kind} to resume in {path}")
        return
    if marker and not (path / marker).is_file():
        raise Fm2Error(f"{operation}: {path} is not a {kind} (no {marker}); choose another {_parameter(operation)}")
    if not (resume or overwrite):
        options = {"resume=True to continue it": resume, "overwrite=True to replace it": overwrite}
        available = " or ".join(option for option, value in options.items() if value is not None)
        raise Fm2Error(f"{operation}: {path} already exists; use {available}")


def _parameter(operation: str) -> str:
    """Return the parameter that names the output of an operation."""
    return "path=" if operation == "save" else "out="


def check_replaceable(path: Path, operation: str, kind: str, pattern: str) -> None:
    """Raise an error if ``path`` is a file of another kind: one whose first bytes do not match ``pattern``.

    Files that take only moments to make from a model are replaced without asking, but a log that was named by
    mistake must not be lost.
    """
    if not path.is_file():
        return
    with write_errors(path, operation), path.open("rb") as file:
        head = file.read(64)
    if head and not re.match(pattern.encode(), head):
        raise Fm2Error(
            f"{operation}: {path} already exists and is not an earlier {kind}; choose another {_parameter(operation)}"
        )


@contextlib.contextmanager
def atomic_directory(path: Path, operation: str, kind: str, marker: str, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to ``path`` on success and removed on an error.

    The next call for the same path removes what a killed process left behind. ``kind``, ``marker`` and ``overwrite``
    are those of :func:`check_output`.
    """
    path = path.resolve()
    check_output(operation, path, kind, marker, overwrite=overwrite)
    _remove_abandoned(path)
    with write_errors(path.parent, operation):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = _temporary(path, Path.mkdir)
    lock = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield partial
        for written in [*partial.rglob("*"), partial]:
            _sync(written)
        check_output(operation, path, kind, marker, overwrite=overwrite)  # another process may have been faster
        if path.exists():
            _exchange(partial, path)  # the old directory is removed below, under its temporary name
        else:
            partial.rename(path)
        _sync(path.parent)
    except OSError as error:
        raise Fm2Error(f"{operation}: {path}: {error.strerror or error}; nothing was written") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that is renamed to ``path`` on success and removed on an error.

    Anything that is not a regular file, such as a pipe or /dev/stdout, is written to directly.
    """
    if path.exists() and not path.is_file():  # before resolve(): the target of a pipe's link is not a path
        yield path
        return
    path = path.resolve()
    partial = _temporary(path, functools.partial(Path.touch, exist_ok=False))
    try:
        yield partial
        _sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def directory_lock(path: Path, operation: str, other: str) -> Iterator[None]:
    """Create a directory if necessary and lock it for this process; ``other`` names who else may hold the lock."""
    with write_errors(path, operation):
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Fm2Error(f"{operation}: {other} is running in {path}") from error
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def write_errors(path: Path, operation: str) -> Iterator[None]:
    """Turn an OSError into an error that names the operation and the path."""
    try:
        yield
    except OSError as error:
        raise Fm2Error(f"{operation}: cannot write to {path}: {error.strerror or error}") from error


def check_utf8(path: str | Path, operation: str) -> None:
    """Raise an error if a path is not valid UTF-8, which native code and other libraries require."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise Fm2Error(f"{operation}: the path {path} is not valid UTF-8; rename it") from error


def remove_partial_files(directory: Path) -> None:
    """Remove the temporary files of a killed :func:`atomic_file`; the caller must hold the directory's lock."""
    for leftover in directory.glob(".*.partial-*"):
        leftover.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _prefix(path: Path) -> str:
    return f".{path.name}.partial-"


def _temporary(path: Path, create: Callable[[Path], None]) -> Path:
    """Create a file or directory of a new, random name next to ``path``, with the permissions of the umask."""
    while True:
        partial = path.with_name(_prefix(path) + secrets.token_hex(4))
        with contextlib.suppress(FileExistsError):
            create(partial)
            return partial


def _remove_abandoned(path: Path) -> None:
    for leftover in path.parent.glob(f"{glob.escape(_prefix(path))}*"):
        with contextlib.suppress(OSError):
            lock = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover, ignore_errors=True)
            finally:
                os.close(lock)


def _exchange(first: Path, second: Path) -> None:
    """Swap the names of two directories, in one step where the system can, so that both always exist."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    current_directory, swap = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    if exchange and exchange(current_directory, os.fsencode(first), current_directory, os.fsencode(second), swap) == 0:
        return
    aside = second.with_name(f".{second.name}.replaced")
    second.rename(aside)
    first.rename(second)
    aside.rename(first)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
