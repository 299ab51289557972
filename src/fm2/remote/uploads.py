"""Upload files so that others see a complete output or none."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.files import PARTIAL
from fm2.progress import Progress
from fm2.remote.trees import UPLOADING, Tree, find_tree
from fm2.remote.urls import OBJECT_STORES, READ_ONLY, filesystem, retry, scheme_of


def check_writable(url: str) -> None:
    """Raise an error if nothing can be written to URLs of this kind."""
    if scheme_of(url) in READ_ONLY:
        raise Fm2Error(f"cannot write to {url}: {scheme_of(url)} is read-only; use a path, or a URL such as s3://")
    if "?" in url:
        raise Fm2Error(f"cannot write to {url}: a URL to write to has no query")
    filesystem(url)  # reports a missing package before any work


def upload(url: str, path: Path, changed: Sequence[str], removed: Sequence[str]) -> tuple[Tree, int]:
    """Upload a file, or the changed files of a directory; return all files at the URL, and the size of those uploaded.

    While a directory is being uploaded, it has a file that says so. The files that describe the others, such as
    ``manifest.json``, are removed first and uploaded last. Files next to a single file, with names that begin with its
    name, are uploaded before it.
    """
    fs, root = filesystem(url)
    root = root.rstrip("/")
    if path.is_file():
        extra = sorted(file for file in path.parent.glob("*") if file != path and PARTIAL not in file.name)
        parent = root.rpartition("/")[0]
        files = [*((file, f"{parent}/{file.name}") for file in extra), *([(path, root)] if changed else [])]
        size = _put_all(url, fs, files)
        return find_tree(url), size
    if not changed and not removed:
        return find_tree(url), 0
    _put_text(url, fs, f"{root}/{UPLOADING}")
    describing = [name for name in changed if _describes(name)]
    for name in [*removed, *describing]:
        _remove(url, fs, f"{root}/{name}")
    ordered = [*(name for name in changed if not _describes(name)), *describing]
    size = _put_all(url, fs, [(path / name, f"{root}/{name}") for name in ordered])
    _remove(url, fs, f"{root}/{UPLOADING}")
    return find_tree(url), size


def _describes(name: str) -> bool:
    """Return whether a file describes the others of its directory, such as manifest.json or settings.toml."""
    return "/" not in name and name.endswith((".json", ".toml"))


def _put_all(url: str, fs: Any, files: Sequence[tuple[Path, str]]) -> int:
    total = sum(file.stat().st_size for file, _ in files)
    done = 0
    with Progress("uploading", total, unit="bytes") as progress:
        for file, target in files:
            _put(url, fs, file, target)
            done += file.stat().st_size
            progress.update(done, done)
    return total


def _put(url: str, fs: Any, file: Path, target: str) -> None:
    """Upload one file, which appears when it is complete."""
    size = file.stat().st_size

    def put() -> None:
        if scheme_of(url) in OBJECT_STORES:
            fs.put_file(str(file), target)
        else:
            folder, _, name = target.rpartition("/")
            fs.makedirs(folder, exist_ok=True)
            partial = f"{folder}/.{name}{PARTIAL}{secrets.token_hex(4)}"
            try:
                fs.put_file(str(file), partial)
                if fs.isfile(target):
                    fs.rm_file(target)
                fs.mv(partial, target)
            except BaseException:
                if fs.isfile(partial):
                    fs.rm_file(partial)
                raise
        fs.invalidate_cache()
        written = fs.info(target)["size"]
        if written != size:
            raise OSError(f"{written:,} of {size:,} bytes arrived")

    retry(f"cannot write to {url}", put)


def _put_text(url: str, fs: Any, target: str) -> None:
    if scheme_of(url) not in OBJECT_STORES:
        retry(f"cannot write to {url}", lambda: fs.makedirs(target.rpartition("/")[0], exist_ok=True))
    retry(f"cannot write to {url}", lambda: fs.pipe_file(target, b"fm2 is writing to this directory\n"))


def _remove(url: str, fs: Any, target: str) -> None:
    def remove() -> None:
        fs.invalidate_cache()
        if fs.isfile(target):
            fs.rm_file(target)

    retry(f"cannot write to {url}", remove)
