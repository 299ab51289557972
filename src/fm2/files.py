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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fm2.errors import Fm2Error

PARTIAL = ".partial-"  # in the name of an output that is being written: .NAME.partial-XXXXXXXX


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

    Every command follows this one policy. An unused path (missing, an empty directory, or one whose creation was
    interrupted) is always fine, but cannot be resumed. ``marker`` is a file that every directory of this kind contains;
    a directory without it belongs to someone else and is never touched. ``marker=None`` means that the output is a
    single file. Pass None for ``resume`` or ``overwrite`` if the operation does not have that option.
    """
    if resume and overwrite:
        raise Fm2Error(
            f"{operation}: resume=True continues a {kind} and overwrite=True replaces it; use only one of them"
        )
    if not path.exists() or (marker and _is_unused(path, marker)):
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
        head = file.read(128)
    if head and not re.match(pattern.encode(), head):
        raise Fm2Error(
            f"{operation}: {path} already exists and is not an earlier {kind}; choose another {_parameter(operation)}"
        )


def _is_unused(path: Path, marker: str) -> bool:
    """Return whether a directory is empty, or a process was killed before it had written the first files there.

    :func:`write_files` starts with the marker's temporary file, so that this file shows an interrupted creation.
    """
    if not path.is_dir() or (path / marker).exists():
        return False
    names = [entry.name for entry in path.iterdir()]
    return not names or any(name.startswith(_prefix(path / marker)) for name in names)


@contextlib.contextmanager
def output_directory(
    operation: str, path: Path, kind: str, marker: str, other: str, *, resume: bool | None, overwrite: bool | None
) -> Iterator[None]:
    """Create a directory if necessary and lock it for this process; ``other`` names who else may hold the lock.

    The other arguments are those of :func:`check_output`. Under the lock, the output is checked again: another process
    may have written it meanwhile. The body has to call :func:`write_files` first. If it fails before that, a new
    directory is removed.
    """
    created = not path.exists()
    with write_errors(path, operation):
        descriptor = _open_directory(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Fm2Error(f"{operation}: {other} is running in {path}") from error
        except OSError:
            pass  # a file system without locks: nothing shows whether another process is running
        if not _is_same(descriptor, path):
            raise Fm2Error(f"{operation}: {path} was removed by another process; try again")
        try:
            check_output(operation, path, kind, marker, resume=resume, overwrite=overwrite)
            yield
        finally:
            if created:
                with contextlib.suppress(OSError):
                    path.rmdir()  # fails unless the directory is empty
    finally:
        os.close(descriptor)


def _open_directory(path: Path) -> int:
    path.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _is_same(descriptor: int, path: Path) -> bool:
    """Return whether a path still names an open file or directory."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def write_files(directory: Path, files: Mapping[str, str], marker: str) -> None:
    """Write the first files of a directory, all or none of them; the ``marker`` is one of them.

    In a directory that has them already, each file is replaced. Then temporary files of killed processes are removed;
    the caller must have locked the directory.
    """
    others = [name for name in files if name != marker]
    with atomic_file(directory / marker) as partial:
        try:
            for name in others:
                write_text(directory / name, files[name])
            partial.write_text(files[marker], encoding="utf-8")
        except BaseException:
            if not (directory / marker).exists():
                for name in others:
                    (directory / name).unlink(missing_ok=True)
            raise
    remove_abandoned(directory)


@contextlib.contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """Yield a directory next to ``path``, which is removed at the end.

    If the process is killed, the next call for the same path removes it.
    """
    path = path.resolve()
    directory, lock = _temporary(path, Path.mkdir)
    try:
        remove_abandoned(path.parent, path.name)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def atomic_directory(
    path: Path, operation: str, kind: str, marker: str | None, overwrite: bool = False
) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to ``path`` on success and removed on an error.

    ``kind``, ``marker`` and ``overwrite`` are those of :func:`check_output`.
    """
    path = path.resolve()
    check_output(operation, path, kind, marker, overwrite=overwrite)
    with contextlib.ExitStack() as stack:
        with write_errors(path.parent, operation):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = stack.enter_context(temporary_directory(path))
        try:
            yield partial
            for written in [*partial.rglob("*"), partial]:
                _sync(written)
            check_output(operation, path, kind, marker, overwrite=overwrite)  # another process may have been faster
            if overwrite and path.exists():
                _exchange(partial, path)  # the old directory is removed under its temporary name
            else:
                partial.rename(path)  # fails unless the directory is missing or empty
            _sync(path.parent)
        except OSError as error:
            raise Fm2Error(f"{operation}: {path}: {error.strerror or error}; nothing was written") from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that is renamed to ``path`` on success and removed on an error.

    If the process is killed, the next call for the same path removes it. Anything that is not a regular file, such as
    a pipe or /dev/stdout, is written to directly.
    """
    if path.exists() and not path.is_file():  # before resolve(): the target of a pipe's link is not a path
        yield path
        return
    path = path.resolve()
    partial, lock = _temporary(path, functools.partial(Path.touch, exist_ok=False))
    try:
        remove_abandoned(path.parent, path.name)
        yield partial
        replace_file(partial, path)
    finally:
        partial.unlink(missing_ok=True)
        os.close(lock)


def replace_file(partial: Path, path: Path) -> None:
    """Give a complete file under a temporary name its own name."""
    _sync(partial)
    partial.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def remove_directory(path: Path) -> None:
    """Remove a directory, if it exists. It disappears in one step, so that a kill leaves no part of it."""
    if path.is_dir():
        with temporary_directory(path) as aside:
            path.rename(aside / path.name)


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


def remove_abandoned(directory: Path, name: str = "*") -> None:
    """Remove the temporary files and directories of killed processes for outputs of this name, or of all names.

    A running process holds a lock on its own.
    """
    pattern = "*" if name == "*" else glob.escape(name)
    for leftover in directory.glob(f".{pattern}{PARTIAL}*"):
        with contextlib.suppress(OSError):
            lock = os.open(leftover, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            finally:
                os.close(lock)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _prefix(path: Path) -> str:
    return f".{path.name}{PARTIAL}"


def _temporary(path: Path, create: Callable[[Path], None]) -> tuple[Path, int]:
    """Create a file or directory of a new, random name next to ``path``, with the permissions of the umask; lock it."""
    while True:
        partial = path.with_name(_prefix(path) + secrets.token_hex(4))
        try:
            create(partial)
            with contextlib.suppress(FileNotFoundError):  # another process took it for abandoned and removed it
                lock = os.open(partial, os.O_RDONLY)
                if _lock_new(lock, partial):
                    return partial, lock
        except FileExistsError:
            continue
        except BaseException:  # a signal between the creation and the caller's clean-up
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
            raise


def _lock_new(lock: int, path: Path) -> bool:
    """Lock a new temporary file or directory; return False if another process took it for abandoned and removed it."""
    with contextlib.suppress(OSError):  # a file system without locks: leftovers stay
        fcntl.flock(lock, fcntl.LOCK_EX)
    if _is_same(lock, path):
        return True
    os.close(lock)
    return False


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
