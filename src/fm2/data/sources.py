"""Sources of rows: text files, Parquet files and DataFrames."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2 import _native
from fm2.data.decompress import file_kind
from fm2.data.remote_parquet import RemoteParquet
from fm2.data.row_inputs import check_column_names, library_errors
from fm2.data.text_files import TextFile, find_columns, open_text_file
from fm2.errors import Fm2Error, require
from fm2.remote.streams import LogFile, RemoteFile, find_remote_files, not_found
from fm2.remote.urls import as_path, is_remote
from fm2.schema import Schema

if TYPE_CHECKING:
    import polars

BATCH_ROWS = 65_536
ROW_BYTES = 200


@dataclass(frozen=True)
class FrameSource:
    """A DataFrame (polars, pandas, pyarrow) or a Parquet file, read in Arrow batches."""

    name: str
    frame: Any
    rows: int | None = None  # if known in advance
    path: LogFile | None = None  # of a Parquet file

    def __str__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        """An estimate in bytes, so that the progress of files and DataFrames can be added up."""
        return (self.rows or 0) * ROW_BYTES

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[_native.ArrowReader, list[int]]]:
        """Yield a reader at each of the batches, with the positions of the columns."""
        rows_read = 0
        with library_errors(f"cannot read {self.name}"):
            for part in self._parts(columns):
                reader = _native.ArrowReader(part)
                positions = find_columns(reader.names, columns, self.name)
                while reader.next():
                    rows_read += reader.rows
                    yield reader, positions
        self._check_rows(rows_read)

    def _check_rows(self, rows_read: int) -> None:
        if self.rows is not None and rows_read != self.rows:
            raise Fm2Error(f"cannot read {self.name}: it has {self.rows} rows, but only {rows_read} could be read")

    def frames(self, columns: Sequence[str]) -> Iterator[polars.DataFrame]:
        """Yield the rows as frames with these columns, one batch at a time if they are not in memory."""
        pl = require("polars", "train", "reading DataFrames")
        rows_read = 0
        with library_errors(f"cannot read {self.name}"):
            for part in self._parts(columns):
                frame: polars.DataFrame = pl.DataFrame(part)
                find_columns(frame.columns, columns, self.name)
                rows_read += frame.height
                yield frame.select(columns)
        self._check_rows(rows_read)

    def _parts(self, columns: Sequence[str]) -> Iterator[Any]:
        if not hasattr(self.frame, "collect_batches"):
            check_column_names(self.frame, self.name)
            yield self.frame
            return
        find_columns(self.frame.collect_schema().names(), columns, self.name)
        yield from self.frame.select(list(columns)).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)


Source = TextFile | FrameSource


def open_sources(sources: Any, schema: Schema, labeled: bool = True) -> list[Source]:
    """Open a path, URL, glob pattern or DataFrame, or a list of these. Without ``labeled``, the label may be absent."""
    opened: list[Source] = []
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if isinstance(source, str | Path):
            opened += [open_file(path, schema, labeled) for path in find_files(source)]
        elif is_frame(source):
            name = f"{type(source).__module__.split('.')[0]} DataFrame"
            opened.append(FrameSource(name, source, len(source) if hasattr(source, "__len__") else None))
        else:
            expected = "a path or a DataFrame (polars, pandas, pyarrow)"
            raise Fm2Error(f"a source must be {expected}, got {type(source).__name__}")
    return opened


def open_file(path: LogFile, schema: Schema, labeled: bool = True) -> Source:
    """Open a file. Without ``labeled``, the label may be absent."""
    return open_parquet(path) if file_kind(path) == "parquet" else open_text_file(path, schema, labeled)


def is_frame(source: Any) -> bool:
    """Return whether an object is a DataFrame, that is, whether it can produce Arrow batches."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "collect_batches")


def find_files(pattern: str | Path) -> Sequence[LogFile]:
    """Return the file of this name or URL, or the sorted files that match a pattern like ``logs/*.tsv.gz``."""
    if is_remote(pattern):
        return find_remote_files(pattern)
    path = as_path(pattern)
    if path.is_file():
        return [path]
    if path.is_dir():
        if not any(path.iterdir()):
            raise Fm2Error(f"{pattern} is an empty directory; pass files, or a pattern such as {path / '*.csv'}")
        raise Fm2Error(f"{pattern} is a directory; pass its files, for example {path / '*.csv'}")
    matches = sorted(Path(match) for match in glob.glob(str(path)) if Path(match).is_file())  # noqa: PTH207
    if not matches:
        raise not_found(str(pattern))
    return matches


def open_parquet(path: LogFile) -> FrameSource:
    """Open a Parquet file and count its rows, so that a damaged file cannot end early unnoticed."""
    polars = require("polars", "train", "reading Parquet")
    with library_errors(f"cannot read {path}"):
        if isinstance(path, RemoteFile):
            remote = RemoteParquet(path)
            return FrameSource(str(path), remote, remote.rows, path)
        frame = polars.scan_parquet(path, glob=False)
        return FrameSource(str(path), frame, int(frame.select(polars.len()).collect().item()), path)
