"""Where models come from: files, named files, and directories of models and their versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fm2.artifacts.model_file import MODEL
from fm2.errors import Fm2Error, not_found, printable
from fm2.remote.paths import local_path
from fm2.remote.urls import is_url

SUFFIX = ".fm2"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # of models, versions, labels and catalogs: they are parts of URLs
FIRST = "1"  # the version of a file without one


@dataclass(frozen=True)
class Source:
    """A file or a directory of models on the command line."""

    path: Path
    name: str = ""  # of a directory: empty
    version: str = FIRST


class Signature(NamedTuple):
    """What changes if a file is replaced or written to."""

    device: int
    inode: int
    bytes: int
    modified: int


def check_name(name: str, kind: str) -> str:
    """Return the name of a model, version, label or catalog, or raise an error if it cannot be a part of a URL."""
    if not NAME.fullmatch(name):
        expected = "letters, digits, '.', '_' and '-', not starting with a punctuation mark"
        raise Fm2Error(f"serve: the {kind} '{printable(name[:80])}' may contain only {expected}")
    return name


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """Parse ``model.fm2``, ``NAME=model.fm2``, ``NAME@VERSION=model.fm2`` and directories, which may be at URLs.

    >>> [(source.name, source.version) for source in parse_sources(["a.fm2", "shop@7=b.fm2"])]
    [('a', '1'), ('shop', '7')]
    """
    sources = []
    for text in texts:
        name, equals, file = _split(text)
        path = local_path(file)
        if not equals and path.is_dir():
            if (path / MODEL).exists():
                raise Fm2Error(f"serve: {path} is a run; fm2 compile turns it into a model file, which can be served")
            sources.append(Source(path))
            continue
        name, _, version = (name or path.name.removesuffix(SUFFIX)).partition("@")
        sources.append(Source(path, check_name(name, "model"), check_name(version or FIRST, "version")))
    named = [(source.name, source.version) for source in sources if source.name]
    for name, version in named:
        if named.count((name, version)) > 1:
            raise Fm2Error(f"serve: two files are version {version} of the model '{name}'; write {name}@2=PATH for one")
    return sources


def _split(text: str) -> tuple[str, str, str]:
    """Return the name, "=" and the file; the query of a URL may contain "=", too."""
    if is_url(text):
        return "", "", text
    return text.partition("=") if is_url(text.partition("=")[2]) else text.rpartition("=")


def scan(sources: Sequence[Source]) -> dict[tuple[str, str], Path]:
    """Return the file of each (model, version)."""
    files: dict[tuple[str, str], Path] = {}
    for source in sources:
        if source.name:
            files.setdefault((source.name, source.version), source.path)
            continue
        root = source.path.resolve()
        for name, version, path in _models_in(source.path):
            if _is_inside(path, root) and NAME.fullmatch(name) and NAME.fullmatch(version):
                files.setdefault((name, version), path)
    return files


def check_exist(sources: Sequence[Source]) -> None:
    """Raise an error if a file or a directory does not exist."""
    for source in sources:
        if not source.path.exists():
            raise not_found("serve: compiled model", source.path, "fm2 compile writes one")


def empty_directories(sources: Sequence[Source]) -> list[Path]:
    """Return the directories that have no model."""
    return [source.path for source in sources if not source.name and not scan([source])]


def _is_inside(path: Path, root: Path) -> bool:
    """Return whether a file is in a directory: a link must not make other files available."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # links that lead to each other
        return False


def _models_in(directory: Path) -> Iterator[tuple[str, str, Path]]:
    for entry in _entries(directory):
        if entry.name.endswith(SUFFIX):
            yield entry.name.removesuffix(SUFFIX), FIRST, Path(entry.path)
        elif Path(entry.path).is_dir():  # False for a link that leads to itself
            for file in _entries(Path(entry.path)):
                if file.name.endswith(SUFFIX):
                    yield entry.name, file.name.removesuffix(SUFFIX), Path(file.path)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Return the visible entries; temporary files start with a dot."""
    try:
        with os.scandir(directory) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return []


def signature(path: Path | int) -> Signature | None:
    """Return the signature of a file or a descriptor, or None if the file does not exist."""
    try:
        status = os.fstat(path) if isinstance(path, int) else path.stat()
    except OSError:
        return None
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def version_key(version: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts versions, numbers in them as numbers.

    >>> sorted(["10", "9", "v2", "9.1"], key=version_key)
    ['9', '9.1', '10', 'v2']
    """
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.findall(r"\d+|\D+", version)]
