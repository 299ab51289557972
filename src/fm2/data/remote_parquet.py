"""Remote Parquet files, read batch by batch; polars would load a file that is not local as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fm2.errors import require
from fm2.remote.streams import RemoteFile

if TYPE_CHECKING:
    import polars


class RemoteParquet:
    """A remote Parquet file with the methods of a polars LazyFrame that fm2 uses; memory is that of a row group."""

    def __init__(self, file: RemoteFile, columns: Sequence[str] | None = None) -> None:
        self._file, self._columns = file, columns
        parquet = self._open()
        self.rows = int(parquet.metadata.num_rows)
        self._schema = parquet.schema_arrow

    def _open(self) -> Any:
        pyarrow = require("pyarrow.parquet", "", "reading remote Parquet files")
        return pyarrow.ParquetFile(self._file.open(), pre_buffer=False)

    def collect_schema(self) -> polars.Schema:
        """Return the names and types of the columns."""
        frame = require("polars", "train", "reading Parquet").from_arrow(self._schema.empty_table())
        schema: polars.Schema = frame.schema
        return schema

    def select(self, columns: Sequence[str]) -> RemoteParquet:
        """Return a reader of some columns."""
        return RemoteParquet(self._file, columns)

    def head(self, rows: int) -> polars.LazyFrame:
        """Return the first rows."""
        for frame in self.collect_batches(rows):
            return frame.lazy()
        return self.collect_schema().to_frame(eager=False)

    def collect_batches(self, chunk_size: int, maintain_order: bool = True) -> Iterator[polars.DataFrame]:
        """Yield the rows as frames, in their order."""
        polars = require("polars", "train", "reading Parquet")
        for batch in self._open().iter_batches(chunk_size, columns=self._columns):
            yield polars.from_arrow(batch).select(self._columns or batch.schema.names)
