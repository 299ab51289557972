"""The formats of prediction files: text, .npy, CSV and Parquet."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2 import files
from fm2.data.decompress import file_kind
from fm2.data.sources import Source
from fm2.data.text_files import TextFile, find_columns, first_line, split_line
from fm2.errors import Fm2Error, require

if TYPE_CHECKING:
    import polars

COLUMN = "probability"
ROW_GROUP_ROWS = 1 << 17
TEXT_OR_ARRAY = r"\x93NUMPY|[01](\.\d+)?(e-\d+)?\n|\d\.?\d*e-\d+\n"  # the first bytes of such a file

# Extensions of formats that fm2 does not write: text in a file with such a name would mislead its reader.
OTHER_TABLES = ("arrow", "avro", "feather", "ipc", "json", "jsonl", "ndjson", "ods", "orc", "tsv", "xls", "xlsx")
OTHER_FILES = ("bz2", "db", "gz", "h5", "hdf5", "npz", "pickle", "pkl", "sqlite", "xz", "zip", "zst", "zstd")

Format = Literal["text", "npy", "csv", "parquet"]
# The kept columns of some rows, cells of a text file or columns of a DataFrame, and the probabilities of these rows.
Batch = tuple["Mapping[str, list[str]] | polars.DataFrame", NDArray[np.float32]]


def file_format(path: Path | None) -> Format:
    """Return the format that a file's extension selects; standard output, None, has that of a .csv file.

    >>> file_format(Path("p.csv.gz")), file_format(Path("p.txt")), file_format(Path("p"))
    ('csv', 'text', 'text')
    """
    name = ".csv" if path is None else path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    extension = name.rpartition(".")[2]
    if extension in (*OTHER_TABLES, *OTHER_FILES) and extension != name:
        raise Fm2Error(
            f"predict: {path}: fm2 does not write .{extension} files; use .csv, .csv.gz, .parquet, .npy, or .txt or no "
            "extension for one probability per line"
        )
    return "parquet" if name.endswith(".parquet") else "npy" if name.endswith(".npy") else "text"


def check_keep(path: Path | None, keep: Sequence[str]) -> None:
    """Raise an error if the output cannot have these columns."""
    if file_format(path) not in ("csv", "parquet") and keep:
        raise Fm2Error(f"predict: cannot keep columns in {path}; write to a .csv, .csv.gz or .parquet file")
    for name in keep:
        if not name or name == COLUMN or list(keep).count(name) > 1:
            reason = "the prediction has this name" if name == COLUMN else "expected different column names"
            raise Fm2Error(f"predict: cannot keep column '{name}': {reason}")


def check_replaceable(path: Path) -> None:
    """Raise an error if the file exists and does not contain predictions."""
    form = file_format(path)
    if form in ("text", "npy"):
        files.check_replaceable(path, "predict", "file of probabilities", TEXT_OR_ARRAY)
    elif path.is_file() and path.stat().st_size and COLUMN not in _column_names(path):
        raise Fm2Error(f"predict: {path} already exists and has no column '{COLUMN}'; choose another output file")


def _column_names(path: Path) -> Sequence[str]:
    """Return the columns of an existing file; none if it cannot be read."""
    try:
        if file_kind(path) == "parquet":
            return list(require("polars", "train", "reading Parquet").read_parquet_schema(path))
        return split_line(first_line(path)[0], ",")
    except (Fm2Error, OSError):
        return ()


def write_batches(path: Path | None, sources: Sequence[Source], keep: Sequence[str], batches: Iterable[Batch]) -> None:
    """Write predictions; the file appears when it is complete."""
    form = file_format(path)
    types = [_source_types(source, keep) for source in sources]
    try:
        with _open(path) as file:
            if form == "text":
                for _, probabilities in batches:
                    file.write(b"".join(b"%.7g\n" % value for value in probabilities.tolist()))
            elif form == "npy":
                all_rows = np.concatenate([np.empty(0, np.float32), *(batch[1] for batch in batches)])
                np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(all_rows))
                file.write(all_rows.data)  # unlike np.save, it says why it fails
            elif form == "csv":
                _write_csv(file, path, keep, batches)
            else:
                _write_parquet(file, sources, types, batches)
    except BrokenPipeError:
        raise  # the reader of standard output exited
    except OSError as error:
        raise Fm2Error(f"predict: {path or 'standard output'}: {error.strerror or error}") from error


@contextlib.contextmanager
def _open(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        return
    with files.atomic_file(path) as partial, partial.open("wb") as file:
        yield file


def _write_csv(file: IO[bytes], path: Path | None, keep: Sequence[str], batches: Iterable[Batch]) -> None:
    """Write CSV without polars, so that a compiled model needs numpy alone."""
    packed = path is not None and path.suffix.lower() == ".gz"
    target: Any = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) if packed else file
    text = io.TextIOWrapper(target, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keep, COLUMN])
    for kept, probabilities in batches:
        texts = [f"{value:.7g}" for value in probabilities.tolist()]
        writer.writerows(zip(*_text_columns(kept), texts, strict=True))
    text.flush()
    text.detach()  # the caller closes its own file
    if packed:
        target.close()


def _text_columns(kept: Mapping[str, list[str]] | polars.DataFrame) -> list[Sequence[str | None]]:
    if isinstance(kept, Mapping):
        return list(kept.values())
    pl = require("polars", "train", "reading DataFrames")
    try:
        return [column.to_list() for column in kept.select(pl.all().cast(pl.String))]
    except pl.exceptions.PolarsError as error:  # a column of lists
        raise Fm2Error(f"predict: cannot write {', '.join(kept.columns)} as CSV: {error}; write Parquet") from error


def _source_types(source: Source, keep: Sequence[str]) -> dict[str, Any]:
    """Return the polars types of the kept columns, None in a text file; raise an error if the source lacks one."""
    if isinstance(source, TextFile):
        source.positions(keep)
        return dict.fromkeys(keep)
    frame = source.frame
    if not hasattr(frame, "collect_schema"):
        frame = require("polars", "train", "reading DataFrames").DataFrame(frame)
    schema = frame.collect_schema()
    find_columns(schema.names(), keep, str(source))
    return {name: schema[name] for name in keep}


def _write_parquet(
    file: IO[bytes], sources: Sequence[Source], types: Sequence[Mapping[str, Any]], batches: Iterable[Batch]
) -> None:
    """Let polars write the batches as they come."""
    pl = require("polars", "train", "writing Parquet")
    schema: dict[str, Any] = {}
    for source, source_types in zip(sources, types, strict=True):
        for name, kind in source_types.items():
            expected = schema.setdefault(name, kind or pl.String)
            if (kind or pl.String) != expected:
                reason = f"column '{name}' is {kind or pl.String} in {source} and {expected} in {sources[0]}"
                raise Fm2Error(f"predict: {reason}; write CSV, or predict the files separately")
    schema[COLUMN] = pl.Float32
    failures: list[BaseException] = []

    def frames(*_: Any) -> Iterator[polars.DataFrame]:
        try:
            for kept, probabilities in batches:
                columns: dict[str, Any] = (
                    {name: [cell or None for cell in cells] for name, cells in kept.items()}  # empty means missing
                    if isinstance(kept, Mapping)
                    else kept.to_dict()
                )
                yield pl.DataFrame({**columns, COLUMN: probabilities}, schema=schema)
        except BaseException as error:
            failures.append(error)  # polars raises an error of its own instead
            raise

    source_of_batches = require("polars.io.plugins", "train", "writing Parquet").register_io_source
    try:
        source_of_batches(frames, schema=schema).sink_parquet(file, row_group_size=ROW_GROUP_ROWS)
    except pl.exceptions.PolarsError as error:
        raise failures[0] if failures else OSError(str(error)) from error
