"""Sharded checkpoints: every worker writes its own part, and a manifest that is written last makes them valid."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.arrays import Stored, map_array, open_arrays, save_arrays, verify_arrays
from fm2.artifacts.run_directory import CHECKPOINT, SHARDED_CHECKPOINT, SHARDS
from fm2.distributed.backend import DistributedBackend
from fm2.distributed.shards import TableShard
from fm2.errors import Fm2Error
from fm2.files import remove_directory, write_errors, write_text

PIECE = 1 << 20  # rows that are read at once


def save_checkpoint(path: Path, backend: DistributedBackend, values: dict[str, Any]) -> None:
    """Write the state of all workers. Until the manifest is replaced, the previous checkpoint is the valid one."""
    workers = backend.workers
    name = f"step-{backend.steps}-of-{workers.count}"
    directory = path / SHARDS / name
    error = None
    try:
        with write_errors(directory, "train"):
            directory.mkdir(parents=True, exist_ok=True)
        save_arrays(directory / _file(workers.index), backend.state(), {"workers": workers.count})
    except Fm2Error as problem:
        error = problem
    workers.agree(error)  # all parts are complete
    if workers.is_first:
        manifest = {"directory": name, "workers": workers.count, **values}
        try:
            with write_errors(path, "train"):
                write_text(path / SHARDED_CHECKPOINT, json.dumps(manifest))
                (path / CHECKPOINT).unlink(missing_ok=True)
                for other in (path / SHARDS).iterdir():
                    if other.name != name:
                        remove_directory(other)
        except Fm2Error as problem:
            error = problem
    workers.agree(error)


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest of a run's last checkpoint, or that of a run with a single process; None without any."""
    if (path / SHARDED_CHECKPOINT).is_file():
        try:
            manifest: dict[str, Any] = json.loads((path / SHARDED_CHECKPOINT).read_text(encoding="utf-8"))
            manifest["files"] = [
                path / SHARDS / str(manifest["directory"]) / _file(index) for index in range(manifest["workers"])
            ]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise Fm2Error(f"{path / SHARDED_CHECKPOINT} is damaged: {error}") from error
        return manifest
    if (path / CHECKPOINT).is_file():
        with open_arrays(path / CHECKPOINT) as (_, values):
            return {**values, "workers": 1, "files": [path / CHECKPOINT]}
    return None


def load_checkpoint(manifest: dict[str, Any], backend: DistributedBackend, steps: int) -> None:
    """Restore a checkpoint, which any number of workers may have written."""
    files, index = manifest["files"], backend.workers.index
    for number, file in enumerate(files):
        if number % backend.workers.count == index:
            verify_arrays(file)
    if len(files) == backend.workers.count:
        with open_arrays(files[index]) as (arrays, _):
            backend.load(arrays, steps)
        return
    with open_arrays(files[0]) as (arrays, _):
        backend.load_dense(arrays, steps)
    for number, file in enumerate(files):
        with open_arrays(file) as (arrays, _):
            for name, shard in backend.shards.items():
                for key, target in shard.state().items():
                    _copy_rows(arrays, f"table.{name}.{key}", number, len(files), shard, target)


def _file(worker: int) -> str:
    return f"worker-{worker}.safetensors"


def _copy_rows(arrays: Stored, name: str, source: int, sources: int, shard: TableShard, target: NDArray[Any]) -> None:
    """Copy the rows that belong to a shard from an array that one of several other workers wrote."""
    stored = map_array(arrays, name)
    whole = len(target) == len(shard.table.weights)  # or a number per feature
    begin = own_begin = 0
    for group, rows in zip(shard.groups, shard.rows, strict=True):
        width = int(shard.dims[group]) if whole else 1
        size, own_size = max(len(range(source, rows, sources)), 1), int(shard.sizes[group])
        from_rows = stored[begin : begin + size * width].reshape(size, width)
        to_rows = target[own_begin : own_begin + own_size * width].reshape(own_size, width)
        begin, own_begin = begin + size * width, own_begin + own_size * width
        for first in range(0, len(range(source, rows, sources)), PIECE):
            ids = np.arange(first, min(first + PIECE, len(range(source, rows, sources)))) * sources + source
            chosen = ids % shard.workers == shard.worker
            to_rows[ids[chosen] // shard.workers] = from_rows[first : first + len(ids)][chosen]


@contextlib.contextmanager
def agreed(agree: Callable[[Fm2Error | None], None]) -> Iterator[None]:
    """Raise an error of any worker in the body on all workers."""
    error = None
    try:
        yield
    except Fm2Error as problem:
        error = problem
    agree(error)
