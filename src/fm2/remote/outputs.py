"""Outputs at URLs: written to a local directory first, and uploaded when they are complete.

The local directory shows the rules for existing outputs what is at the URL: the names of its files, which are empty
unless the output is continued. So these rules are the same as for paths. After the operation, files that it changed
are uploaded, files that it removed are deleted, and files that it did not touch stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error, name_locations
from fm2.files import PARTIAL, write_errors
from fm2.remote.cache import (
    copy_path,
    entry_of,
    local_files,
    locked,
    read_state,
    remove,
    write_state,
)
from fm2.remote.paths import Report
from fm2.remote.streams import RemoteFile
from fm2.remote.trees import UPLOADING, Tree, download, find_tree, format_size, list_tree, versions
from fm2.remote.uploads import check_writable, upload
from fm2.remote.urls import as_path, is_remote

HEAD_BYTES, TAIL_BYTES = 2 << 20, 1 << 20  # of a file, which show what kind of file it is


@contextlib.contextmanager
def output(
    location: str | Path, *, resume: bool = False, update: bool = False, report: Report = lambda message: None
) -> Iterator[Path]:
    """Yield the path to write an output to: the path itself, or a local one that is uploaded if there is no error.

    With ``resume``, an output that was not finished on this machine is continued, or else what is at the URL. An
    ``update`` changes what is at the URL. The local path stays valid afterward.
    """
    if not is_remote(location):
        yield as_path(location)
        return
    kind = "updates" if update else "outputs"
    path, entry = copy_path(location, kind), entry_of(location, kind)
    check_writable(location)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(entry, wait=False))
        except BlockingIOError as error:
            raise Fm2Error(f"{location}: another process on this machine is writing to it") from error
        except OSError as error:
            raise Fm2Error(f"cannot write to {entry}: {error.strerror}; FM2_CACHE selects another directory") from error
        staging = _Staging(location, path, entry)
        with write_errors(entry, "download"):
            staging.start(resume, update)
        try:
            yield path
        except BaseException:
            staging.discard_if_unused()
            if path.exists():
                report(f"{name_locations(location)} was not uploaded; unfinished files are kept in {entry}")
            raise
        staging.finish(report)


class _Staging:
    """The local directory of an output. Its state is kept in a file, so that it survives a killed process."""

    def __init__(self, url: str, path: Path, entry: Path) -> None:
        self._url, self._path, self._entry = url, path, entry
        self._state = read_state(entry)

    def start(self, resume: bool, update: bool) -> None:
        """Make the local directory show what is at the URL, unless it holds an unfinished output."""
        self.discard_if_unused()
        phase = self._state.get("phase")
        if self._path.exists() and (phase == "writing" or (phase == "uploading" and resume)) and not update:
            return
        tree = find_tree(self._url) if update else list_tree(self._url)
        remove(self._path.parent)
        self._path.parent.mkdir(parents=True)
        if UPLOADING not in tree:  # otherwise nothing complete is there
            _mirror(tree, self._path, complete=resume or update)
        names = sorted({*tree} - {UPLOADING})
        self._save(phase="writing", url=name_locations(self._url), known=names, mirrored=local_files(self._path))

    def discard_if_unused(self) -> None:
        """Remove the local directory if the operation wrote nothing."""
        if self._state.get("phase") == "writing" and not self._changed():
            remove(self._path.parent)
            self._save(phase="none")

    def finish(self, report: Report) -> None:
        """Upload what changed, and keep the result as a local copy of what is at the URL."""
        if not self._path.exists():
            self._save(phase="none")
            return
        self._save(**self._state | {"phase": "uploading"})
        files = self._changed()
        kept = {*local_files(self._path)}
        removed = [name for name in self._state.get("known", ()) if name not in kept]
        try:
            tree, size = upload(self._url, self._path, files, removed)
        except Fm2Error as error:
            raise Fm2Error(f"{error}; the output is complete in {self._path.parent}") from error
        report(f"uploaded {format_size(size)} to {name_locations(self._url)}")
        self._save(phase="done")
        self._keep_copy(tree)

    def _changed(self) -> list[str]:
        """Return the names of new and changed files."""
        mirrored = self._state.get("mirrored", {})
        files = local_files(self._path)
        return [name for name, stat in files.items() if PARTIAL not in name and mirrored.get(name) != stat]

    def _keep_copy(self, tree: Tree) -> None:
        """Turn the local directory into the copy that a reader of the URL uses, if it has all files."""
        files = local_files(self._path)
        if {name: stat[0] for name, stat in files.items()} != {name: file.size for name, file in tree.items()}:
            return  # some files are empty placeholders
        copy, entry = copy_path(self._url, "copies"), entry_of(self._url, "copies")
        with contextlib.suppress(OSError), locked(entry, wait=True):
            remove(copy)
            copy.parent.mkdir(parents=True, exist_ok=True)
            self._path.rename(copy)
            self._path.symlink_to(copy)
            write_state(entry, {"url": name_locations(self._url), "versions": versions(tree), "files": files})

    def _save(self, **state: Any) -> None:
        self._state = state
        with write_errors(self._entry, "output"):
            write_state(self._entry, state)


def _mirror(tree: Tree, path: Path, complete: bool) -> None:
    """Download files, or create empty ones of the same names; of a single file, also its beginning and end."""
    if complete or not tree:
        if "" not in tree and tree:
            path.mkdir()
        download(tree, path)
    elif "" in tree:
        _sample(tree[""], path)
    else:
        for name in tree:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).touch()


def _sample(file: RemoteFile, path: Path) -> None:
    """Write a file of the same size with the beginning and the end of a remote file, and a hole between."""
    with file.open() as source, path.open("wb") as sample:
        sample.write(source.read(HEAD_BYTES))
        if file.size is not None and file.size > HEAD_BYTES:
            start = max(HEAD_BYTES, file.size - TAIL_BYTES)
            source.seek(start)
            sample.seek(start)
            sample.write(source.read(TAIL_BYTES))
