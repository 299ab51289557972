"""Writing a compiled model: named sections in one file, which appears whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.errors import Fm2Error
from fm2.files import atomic_file

Bytes = NDArray[np.uint8]
LINE, NAME = 64, 48
BEGINS = "fm2model"


def rounded(size: int) -> int:
    """Round a size up to whole cache lines.

    >>> rounded(1), rounded(64)
    (64, 64)
    """
    return -(-size // LINE) * LINE


def open_sections(path: Path, kind: str) -> dict[str, Bytes]:
    """Map the sections of a file of another kind than a model's; its checksum is compared."""
    try:
        whole = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        found = _native.model_sections(str(path))
    except OSError as wrong:
        raise Fm2Error(f"load: {wrong}") from wrong
    sections = {name: np.asarray(whole[offset : offset + size]) for name, offset, size in found}
    if sections.get("kind", np.empty(0, np.uint8)).tobytes() != kind.encode():
        raise Fm2Error(f"load: {path} is no {kind}")
    return sections


@contextlib.contextmanager
def new_model(path: Path, sections: Mapping[str, NDArray[Any] | int]) -> Iterator[dict[str, Bytes]]:
    """Make a file of these sections: arrays, or sizes of those that the caller fills with bytes before this ends."""
    sizes = {name: value if isinstance(value, int) else value.nbytes for name, value in sections.items()}
    entry = np.dtype([("name", f"S{NAME}"), ("offset", "<u8"), ("bytes", "<u8")])
    index, at = np.zeros(len(sections), entry), LINE + len(sections) * LINE
    for place, (name, size) in enumerate(sizes.items()):
        index[place] = (name.encode(), at, size)
        at += rounded(size)
    try:
        with atomic_file(path) as partial:
            with partial.open("wb") as file:
                file.truncate(at)
            whole = np.memmap(partial, np.uint8, "r+")
            whole[LINE : LINE + index.nbytes] = index.view(np.uint8)
            parts = {row["name"].decode(): whole[row["offset"] : row["offset"] + row["bytes"]] for row in index}
            for name, value in sections.items():
                if not isinstance(value, int):
                    parts[name][:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            yield {name: parts[name] for name, value in sections.items() if isinstance(value, int)}
            whole[:LINE] = np.frombuffer(_native.model_header(len(sections), whole[LINE:]), np.uint8)
            whole.flush()
    except OSError as refused:
        raise Fm2Error(f"compile: {path}: {refused.strerror or refused}") from refused
