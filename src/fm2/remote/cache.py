"""Local copies of remote files and directories, for what fm2 maps into memory: datasets, runs and compiled models."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error, name_copy, name_locations
from fm2.files import atomic_directory, atomic_file, write_errors, write_text
from fm2.remote.paths import Report
from fm2.remote.trees import Tree, download, find_tree, format_size, total_size, versions

STATE = "state.json"


def cache_directory() -> Path:
    """Return the directory of all local copies: ``FM2_CACHE``, or ``~/.cache/fm2``."""
    return Path(os.environ.get("FM2_CACHE") or Path.home() / ".cache" / "fm2").resolve()


def entry_of(url: str, kind: str) -> Path:
    """Return the directory of what the cache has of a URL. ``kind`` is copies, outputs or updates."""
    key = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:24]
    return cache_directory() / kind / key


def copy_path(url: str, kind: str) -> Path:
    """Return the path of the local copy of a URL, which has the same name; messages will name the URL instead."""
    name = url.rstrip("/").rpartition("/")[2].partition("?")[0]
    if name in ("", ".", "..") or "\0" in name or "/" not in url.rstrip("/").partition("://")[2]:
        raise Fm2Error(f"{url} has no name after the last slash; add one")
    path = entry_of(url, kind) / "files" / name
    name_copy(str(path), name_locations(url.rstrip("/")))
    return path


def download_copy(url: str, report: Report) -> Path:
    """Return the path of a local copy; download it unless it is up to date."""
    tree = find_tree(url)
    path, entry = copy_path(url, "copies"), entry_of(url, "copies")
    with write_errors(entry, "download"), locked(entry, wait=True):
        state = read_state(entry)
        if state.get("versions") == versions(tree) and state.get("files") == local_files(path):
            return path
        (entry / STATE).unlink(missing_ok=True)
        _replace(path, tree)
        if versions(find_tree(url)) != versions(tree):
            raise Fm2Error(f"cannot read {url}: it was replaced while it was downloaded; try again")
        write_state(entry, {"url": name_locations(url), "versions": versions(tree), "files": local_files(path)})
    report(f"downloaded {format_size(total_size(tree.values()))}, {name_locations(url)}, to {entry}")
    return path


def is_copy(path: Path) -> bool:
    """Return whether a path belongs to the cache; changes there would not reach the URL."""
    return path.resolve().is_relative_to(cache_directory())


def _replace(path: Path, tree: Tree) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and path.is_dir() == ("" in tree)):
        remove(path)
    if "" in tree:
        with atomic_file(path) as partial:
            download(tree, partial)
    else:
        with atomic_directory(path, "download", "copy", None, overwrite=True) as partial:
            download(tree, partial)


def remove(path: Path) -> None:
    """Remove a file, a link or a directory, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def local_files(path: Path) -> dict[str, list[int]]:
    """Return the size and the time of the file at a path, or of all files in a directory."""
    files = {"": path} if path.is_file() else {file.relative_to(path).as_posix(): file for file in path.rglob("*")}
    stats = {name: file.stat() for name, file in files.items() if file.is_file()}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in sorted(stats.items())}


def read_state(entry: Path) -> dict[str, Any]:
    """Return what is known about an entry of the cache, if anything."""
    with contextlib.suppress(OSError, ValueError):
        state = json.loads((entry / STATE).read_text(encoding="utf-8"))
        if isinstance(state, dict):
            return state
    return {}


def write_state(entry: Path, state: dict[str, Any]) -> None:
    """Write what is known about an entry of the cache."""
    write_text(entry / STATE, json.dumps(state, indent=1))


@contextlib.contextmanager
def locked(entry: Path, wait: bool) -> Iterator[None]:
    """Lock an entry of the cache for this process; wait for another process, or raise BlockingIOError."""
    entry.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks: nothing shows whether another process is running
        yield
    finally:
        os.close(descriptor)
