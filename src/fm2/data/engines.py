"""The engines of prepare by name. Ray is imported only if it is chosen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from fm2.data.engine import Engine, LocalEngine, Reading
from fm2.data.part_rows import PartFiles
from fm2.data.sources import Source
from fm2.errors import Fm2Error, require, suggest

Engines = Literal["local", "ray"]


def check_engine(engine: str, address: str | None) -> None:
    """Raise an error if there is no such engine, or if its package is missing."""
    if engine not in get_args(Engines):
        raise Fm2Error(f"prepare: unknown engine '{engine}'; {suggest(engine, get_args(Engines))}")
    if address is not None and engine != "ray":
        raise Fm2Error('prepare: address= is that of a Ray cluster and requires engine="ray"')
    if engine == "ray":
        require("ray", "ray", 'engine="ray"')


@contextlib.contextmanager
def open_engine(
    name: Engines,
    address: str | None,
    reading: Reading,
    sources: Sequence[tuple[Source, int | None]],
    directory: Path,
) -> Iterator[Engine]:
    """Open an engine that reads the sources and writes to the directory."""
    if name == "local":
        with contextlib.closing(LocalEngine(reading, sources, directory)) as engine:
            yield engine
        return
    from fm2.data.ray_engine import ray_engine

    with ray_engine(address, reading, source_files(sources), directory) as parts:
        yield parts


def source_files(sources: Sequence[tuple[Source, int | None]]) -> PartFiles:
    """Return the files of sources, which tasks open themselves; refuse DataFrames."""
    files = []
    for source, split in sources:
        if source.path is None:
            raise Fm2Error(f'prepare: engine="ray" reads files, not a {source}; write it to a Parquet file')
        files.append((source.path, split))
    return files
