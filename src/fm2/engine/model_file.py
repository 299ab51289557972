"""Write compiled models and catalogs: files of named sections (``native/include/fm2/model_file.h`` has the format)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.errors import Fm2Error, not_found

Bytes = NDArray[np.uint8]
Sections = Mapping[str, NDArray[Any] | int]  # arrays, or sizes in bytes
LINE = 64  # the header, an index entry, and the alignment of sections
INDEX_ENTRY = np.dtype([("name", "S48"), ("offset", "<u8"), ("bytes", "<u8")])
# The first bytes of a catalog, and of a compiled model: the magic number, the rest of the header, the first section.
CATALOG_START = r"(?s)fm2model.{56}kind\0"
MODEL_START = r"(?s)fm2model(?!.{56}kind\0)"


def align(size: int, unit: int = LINE) -> int:
    """Round a size up to a multiple of a unit, by default to complete cache lines."""
    return -(-size // unit) * unit


def open_sections(path: Path, kind: str) -> dict[str, Bytes]:
    """Map the sections of a file of this kind into memory, and verify its checksum."""
    try:
        mapping = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        index = _native.model_sections(str(path))
    except FileNotFoundError as error:
        raise not_found(f"load: {kind}", path) from error
    except OSError as error:
        raise Fm2Error(f"load: {error}") from error
    except UnicodeDecodeError as error:
        raise Fm2Error(f"load: {path}: not a {kind}: the name of a section is not UTF-8") from error
    sections = {name: np.asarray(mapping[offset : offset + size]) for name, offset, size in index}
    if sections.get("kind", np.empty(0, np.uint8)).tobytes() != kind.encode():
        raise Fm2Error(f"load: {path}: not a {kind}")
    return sections


class ModelWriter:
    """A new file of sections, mapped into memory.

    Each section is an array, or a size in bytes for a section to be filled later, through ``writer[name]``. The file is
    valid after :meth:`seal`; call it again after a change.
    """

    def __init__(self, path: Path, sections: Sections) -> None:
        index = np.zeros(len(sections), INDEX_ENTRY)
        end = LINE + index.nbytes
        for entry, (name, section) in zip(index, sections.items(), strict=True):
            size = section if isinstance(section, int) else section.nbytes
            entry["name"], entry["offset"], entry["bytes"] = name.encode(), end, size
            end += align(size)
        _allocate(path, end)
        self._mapping = np.memmap(path, np.uint8, "r+")
        self._mapping[LINE : LINE + index.nbytes] = index.view(np.uint8)
        self._index = {entry["name"].decode(): (int(entry["offset"]), int(entry["bytes"])) for entry in index}
        for name, section in sections.items():
            if not isinstance(section, int):
                self[name][:] = np.ascontiguousarray(section).reshape(-1).view(np.uint8)

    def __getitem__(self, name: str) -> Bytes:
        offset, size = self._index[name]
        return self._mapping[offset : offset + size]

    def seal(self) -> None:
        """Write the header, with the checksum of all sections."""
        self._mapping[:LINE] = np.frombuffer(_native.model_header(len(self._index), self._mapping[LINE:]), np.uint8)


def _allocate(path: Path, size: int) -> None:
    """Create a file of zeros. Reserve its blocks: with a full disk, writing to the mapping would crash the process."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
