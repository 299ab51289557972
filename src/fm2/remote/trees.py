"""The files of a remote location, a file or a directory: list and download them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error, printable
from fm2.progress import Progress
from fm2.remote.streams import RemoteFile
from fm2.remote.urls import filesystem, retry, scheme_of

UPLOADING = ".fm2-upload-in-progress"  # a file in a directory that is not complete
DEEPEST = 6  # levels of directories; a page of links may refer to itself

Tree = dict[str, RemoteFile]  # by name in the directory; the name of a single file is ""


def list_tree(url: str) -> Tree:
    """Return the files in a remote directory, or the single file; empty if there is nothing."""
    tree = retry(f"cannot read {url}", lambda: _list(url))
    for name in tree:
        if name and not _is_safe(name):
            raise Fm2Error(f"cannot read {url}: unsafe file name '{printable(name)}'")
    return tree


def _is_safe(name: str) -> bool:
    """Return whether a name stays in its directory."""
    return not any(part in ("", ".", "..") or "\0" in part for part in name.split("/"))


def find_tree(url: str) -> Tree:
    """Return the files of a location; raise an error unless it exists and is complete."""
    tree = list_tree(url)
    if not tree:
        raise Fm2Error(f"{url}: not found")
    if UPLOADING in tree:
        raise Fm2Error(f"{url} is incomplete: its upload is in progress or was interrupted; write it again")
    return tree


def _list(url: str) -> Tree:
    fs, path = filesystem(url)
    fs.invalidate_cache()
    if scheme_of(url) in ("http", "https"):
        return _list_http(fs, url)
    root = path.rstrip("/")
    found: dict[str, Any] = fs.find(root, detail=True)
    files = {name: info for name, info in found.items() if info["type"] == "file" and not name.endswith("/")}
    if root in files:
        return {"": RemoteFile.of(url, fs, root, files[root])}
    base = url.rstrip("/")
    names = {name: name.removeprefix(f"{root}/") for name in files if name.startswith(f"{root}/")}
    return {names[name]: RemoteFile.of(f"{base}/{names[name]}", fs, name, files[name]) for name in sorted(names)}


def _list_http(fs: Any, url: str) -> Tree:
    """List the links of a page; a directory has no other description over HTTP."""
    try:
        info = fs.info(url)
    except FileNotFoundError as error:
        if getattr(error.__cause__, "status", None) == 404:
            return {}
        raise
    if info.get("mimetype") != "text/html" or url.lower().endswith((".html", ".htm")):
        return {"": RemoteFile.of(url, fs, url, info)}
    base = url.rstrip("/") + "/"
    links = {link.removeprefix(base): link for link in sorted(_links(fs, base, DEEPEST))}
    names = {name: link for name, link in links.items() if _is_safe(name) and "?" not in name and "#" not in name}
    return {name: RemoteFile.of(link, fs, link, fs.info(link)) for name, link in names.items()}


def _links(fs: Any, page: str, depth: int) -> Iterator[str]:
    """Yield the links of a page to files below it, and those of the pages below it."""
    for link in fs.ls(page, detail=False):
        if link.startswith(page) and link != page and ".." not in link.split("/"):
            if not link.endswith("/"):
                yield link
            elif depth > 1:
                yield from _links(fs, link, depth - 1)


def versions(tree: Mapping[str, RemoteFile]) -> dict[str, list[Any]]:
    """Return what identifies the files of a tree, in a form that JSON keeps."""
    return {name: [file.size, file.version] for name, file in tree.items()}


def total_size(files: Iterable[RemoteFile]) -> int:
    """Return the size of files in bytes, as far as it is known."""
    return sum(file.size or 0 for file in files)


def format_size(size: int) -> str:
    """Return a size as messages show it.

    >>> format_size(1234), format_size(1_234_567)
    ('1,234 bytes', '1.2 MB')
    """
    return f"{size:,} bytes" if size < 100_000 else f"{size / 1e6:,.1f} MB"


def download(tree: Tree, target: Path) -> None:
    """Download a file to ``target``, or the files of a directory into it."""
    total = total_size(tree.values())
    free = shutil.disk_usage(target.parent).free
    if total > free:
        needed = f"cannot download {format_size(total)}: {format_size(free)} are free in {target.parent}"
        raise Fm2Error(f"{needed}; FM2_CACHE selects another directory")
    done = 0
    with Progress("loading", total, unit="bytes") as progress:
        for name, file in tree.items():
            path = target / name if name else target
            path.parent.mkdir(parents=True, exist_ok=True)
            size = 0
            with file.open() as source, path.open("wb") as copy:
                while data := source.read(1 << 20):
                    copy.write(data)
                    size += len(data)
                    progress.update(done + size, done + size)
            if file.size is not None and size != file.size:
                raise Fm2Error(f"cannot read {file}: {size:,} of {file.size:,} bytes arrived")
            done += size
