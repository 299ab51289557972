"""Prepare a log in parts without Ray, and compare datasets that differ in their parts only."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path
from typing import Any

from fm2.data.engines import source_files
from fm2.data.parts_engine import PartsEngine
from fm2.data.splits import SPLITS

SHARDS = 3


def run_here(function: Any, shared: Any, arguments: Any, names: Any) -> list[Any]:
    """Call a function in this process with copies of its arguments, as a task would get them."""
    return [pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps((*shared, *each)))))) for each in arguments]


@contextlib.contextmanager
def open_parts_engine(name: Any, address: Any, reading: Any, sources: Any, directory: Path) -> Any:
    """Open an engine like ``fm2.data.engines.open_engine``, whose tasks run in this process."""
    with contextlib.closing(PartsEngine(reading, source_files(sources), directory, run_here, SHARDS)) as engine:
        yield engine


def check_same_dataset(one: Any, other: Any, parts: int) -> None:
    """Check that the bytes of all arrays, vocabularies and lists are equal, and all that the manifest says of them."""
    one.verify()
    other.verify()
    for split in SPLITS:
        for name in ("ids", "labels", "rows", "weights"):
            expected, actual = (getattr(dataset.split(split), name) for dataset in (one, other))
            assert (expected is None) == (actual is None)
            if expected is not None:
                assert actual.dtype == expected.dtype and actual.shape == expected.shape
                assert actual.tobytes() == expected.tobytes(), f"{split} {name}"
    arrays = {name for name in one.manifest["files"] if name.startswith(SPLITS)}
    for name in one.manifest["files"].keys() - arrays:
        assert (other.path / name).read_bytes() == (one.path / name).read_bytes(), name
        assert other.manifest["files"][name] == one.manifest["files"][name]
    in_parts = {f"parts/{part}/{name}" for part in range(parts) for name in arrays} if parts > 1 else arrays
    assert other.manifest["files"].keys() == (one.manifest["files"].keys() - arrays) | in_parts
    written = {file.relative_to(other.path).as_posix() for file in other.path.rglob("*") if file.is_file()}
    assert written == {*other.manifest["files"], "manifest.json"}
    manifests = [json.loads((dataset.path / "manifest.json").read_text()) for dataset in (one, other)]
    for manifest in manifests:
        for name in ("version", "parts", "files"):
            manifest.pop(name, None)
    assert json.dumps(manifests[0]) == json.dumps(manifests[1])  # also in the same order
