"""Files and directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fm2.errors import Fm2Error


@contextlib.contextmanager
def atomic_directory(path: Path, operation: str, marker: str, overwrite: bool = False) -> Iterator[Path]:
    """Fill a directory under another name and give it its own at the end; on an error nothing is left.

    What a killed process left behind is removed by the next one that makes the same directory. ``marker`` is a file
    that every such directory has: with ``overwrite`` only one that has it is replaced.
    """
    path = path.resolve()
    _check_target(path, operation, marker, overwrite)
    _remove_abandoned(path)
    with write_errors(path.parent, operation):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=_prefix(path), dir=path.parent))
    held = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        partial.chmod(0o755)
        yield partial
        _sync(partial)
        _check_target(path, operation, marker, overwrite)
        if path.exists():
            _exchange(partial, path)  # what was there is removed below, under the other name
        else:
            partial.rename(path)
        _sync_one(path.parent)
    except OSError as failed:
        raise Fm2Error(f"{operation}: {path}: {failed.strerror or failed}; nothing was kept") from failed
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(held)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Fill a file under another name and give it its own at the end; on an error nothing is left.

    What is there and is no file, such as a pipe or /dev/stdout, is written to directly.
    """
    if path.exists() and not path.is_file():  # asked before links are followed: where a pipe's leads to is no path
        yield path
        return
    path = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)
    os.close(descriptor)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_replaceable(path: Path, operation: str, what: str, begins: str) -> None:
    """Refuse to replace a file of another kind than the one to be written, which begins by this pattern.

    What is made of a model in moments is made anew without a question; a log that is named by mistake is not lost.
    """
    if not path.is_file():
        return
    with write_errors(path, operation), path.open("rb") as file:
        head = file.read(64)
    if head and not re.match(begins.encode(), head):
        raise Fm2Error(
            f"{operation}: {path} is there already and is no {what}, so it is not replaced; give another --out"
        )


@contextlib.contextmanager
def directory_lock(path: Path, operation: str, other: str) -> Iterator[None]:
    """Make a directory unless it is there, and keep it for this process alone; ``other`` is what may be there too."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as refused:
        raise Fm2Error(f"{operation}: {path}: {refused.strerror}") from refused
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            raise Fm2Error(f"{operation}: {other} is at work in {path}") from taken
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def write_errors(directory: Path, operation: str) -> Iterator[None]:
    """Tell that a directory cannot be written to, if that is so."""
    try:
        yield
    except OSError as refused:
        raise Fm2Error(f"{operation}: cannot write to {directory}: {refused.strerror}") from refused


def remove_partial_files(directory: Path) -> None:
    """Remove what :func:`atomic_file` left in a directory when it was killed; whoever calls it has it for himself."""
    for leftover in directory.glob(".*.partial-*"):
        leftover.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Give a file's SHA-256.

    >>> checksum(Path("/dev/null"))[:8]
    'e3b0c442'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _prefix(path: Path) -> str:
    return f".{path.name}.partial-"


def _check_target(path: Path, operation: str, marker: str, overwrite: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise Fm2Error(f"{operation}: {path} is there already and is not a directory")
    if overwrite and not (path / marker).is_file() and any(path.iterdir()):
        raise Fm2Error(f"{operation}: {path} holds something else (it has no {marker}), so it is not overwritten")
    if not overwrite and any(path.iterdir()):
        raise Fm2Error(f"{operation}: {path} is there already; --overwrite replaces it")


def _remove_abandoned(path: Path) -> None:
    for leftover in path.parent.glob(f"{glob.escape(_prefix(path))}*"):
        with contextlib.suppress(OSError):
            held = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover, ignore_errors=True)
            finally:
                os.close(held)


def _exchange(one: Path, other: Path) -> None:
    """Let two paths change their names, in one step where the system can, so that both are always there."""
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, swap = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    if exchange and exchange(here, os.fsencode(one), here, os.fsencode(other), swap) == 0:
        return
    aside = other.with_name(f".{other.name}.replaced")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def _sync(directory: Path) -> None:
    for file in [*directory.rglob("*"), directory]:
        _sync_one(file)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
