"""Where rows come from: text files, Parquet files, and tables in memory."""

from __future__ import annotations

import contextlib
import csv
import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2 import _native
from fm2.data.streams import head, packing
from fm2.errors import Fm2Error, require, suggest
from fm2.schema import Schema

if TYPE_CHECKING:
    import polars

SEPARATORS = "\t,;|\x01"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BATCH_ROWS = 65_536
ROW_BYTES = 200
LIBFFM_LINE = re.compile(rb"[+-]?[0-9.]+([ \t]+\d+:[^\s:]+:[^\s:]+)+\s*")


@dataclass(frozen=True)
class TextFile:
    """A file of separated values, or of libffm's format."""

    path: Path
    names: tuple[str, ...]
    header_bytes: int
    format: _native.TextFormat

    def __str__(self) -> str:
        return str(self.path)

    @property
    def size(self) -> int:
        """The bytes to read, packed as they are."""
        return self.path.stat().st_size

    def positions(self, columns: Sequence[str]) -> list[int]:
        """Tell where these columns stand in a row."""
        return find_columns(self.names, columns, str(self))


@dataclass(frozen=True)
class Table:
    """Rows that are, or can be read as, tables with named columns."""

    name: str
    table: Any

    def __str__(self) -> str:
        return self.name

    rows: int | None = None  # where they are known before they are read

    @property
    def size(self) -> int:
        """The rows, taken for so many bytes each that files and tables can be added up."""
        return (self.rows or 0) * ROW_BYTES

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[_native.ArrowReader, list[int]]]:
        """Give the rows batch after batch, each with the places where these columns stand."""
        seen = 0
        for part in _parts(self.table, columns, self.name):
            with _readable(self.name):
                reader = _native.ArrowReader(part)
            positions = find_columns(reader.names, columns, self.name)
            while _next(reader, self.name):
                seen += reader.rows
                yield reader, positions
        if self.rows is not None and seen != self.rows:
            raise Fm2Error(f"{self.name} cannot be read: only {seen} of its {self.rows} rows came out")

    def frames(self, columns: Sequence[str]) -> Iterator[polars.DataFrame]:
        """Yield the rows as frames with these columns, one batch at a time if the table is not in memory."""
        pl = require("polars", "train", "reading tables")
        rows = 0
        for part in _parts(self.table, columns, self.name):
            with _readable(self.name):
                frame: polars.DataFrame = pl.DataFrame(part)
                find_columns(frame.columns, columns, self.name)
                frame = frame.select(columns)
            rows += frame.height
            yield frame
        if self.rows is not None and rows != self.rows:
            raise Fm2Error(f"{self.name} cannot be read: only {rows} of its {self.rows} rows came out")


Source = TextFile | Table


def find_columns(names: Sequence[str], wanted: Sequence[str], where: str) -> list[int]:
    """Tell where each wanted column stands among the names."""
    for name in wanted:
        if list(names).count(name) != 1:
            if name in names:
                raise Fm2Error(f"{where} has two columns '{name}'; it has {_listing(names)}")
            meant = suggest(name, names)
            suggestion = meant if meant.startswith("did you mean") else f"it has {_listing(names)}"
            raise Fm2Error(f"{where} has no column '{name}'; {suggestion}")
    return [list(names).index(name) for name in wanted]


def open_sources(sources: Any, schema: Schema, labeled: bool = True) -> list[Source]:
    """Find out what is meant by a path, a glob, a table, or a list of these; not ``labeled``, they need no label."""
    found: list[Source] = []
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if isinstance(source, str | Path):
            found += [_open_file(path, schema, labeled) for path in find_files(source)]
        elif is_table(source):
            found.append(Table(f"{type(source).__module__.split('.')[0]} table", source, _count_rows(source)))
        else:
            raise Fm2Error(f"a source is a path or a table (polars, pandas, pyarrow), not {type(source).__name__}")
    return found


def is_table(source: Any) -> bool:
    """Tell whether something can hand out its rows as Arrow batches."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "collect_batches")


def find_files(pattern: str | Path) -> list[Path]:
    """Give the file of that name, or the files that a pattern like ``logs/*.tsv.gz`` matches, sorted."""
    path = Path(pattern)
    if path.is_file():
        return [path]
    if path.is_dir():
        raise Fm2Error(f"{pattern} is a directory; name its files, for example {path / '*.csv'}")
    matches = sorted(Path(match) for match in glob.glob(str(pattern)) if Path(match).is_file())  # noqa: PTH207
    if not matches:
        raise Fm2Error(f"there is no file {pattern}")
    return matches


def split_line(line: str, separator: str) -> list[str]:
    """Cut a line into cells; only comma-separated files use quotes.

    >>> split_line('a,"b,c"', ","), split_line('a;"b', ";")
    (['a', 'b,c'], ['a', '"b'])
    """
    if separator != "," or '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line]))
    except csv.Error:  # a stray carriage return, or a cell without end: no header then
        return line.split(separator)


def first_line(path: Path) -> tuple[str, int]:
    """Give the first line of a text file, and how many bytes of the file it takes with its end."""
    start = head(path)
    if not start.strip():
        raise Fm2Error(f"{path} is empty")
    if b"\x00" in start[:4096] or start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Fm2Error(f"{path} is not text in UTF-8: it has zero bytes or the mark of UTF-16 at its beginning")
    line = start.split(b"\n", 1)[0]
    size = min(len(line) + 1, len(start))
    try:
        return line.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r").decode(), size
    except UnicodeDecodeError as wrong:
        raise Fm2Error(f"{path} line 1 is not text in UTF-8: {wrong.reason}") from wrong


def is_libffm(line: str) -> bool:
    """Tell whether a line is in libffm's format, ``label field:feature:value ...``.

    >>> is_libffm("1 0:17:1 1:4:1"), is_libffm("1,17,4")
    (True, False)
    """
    return LIBFFM_LINE.fullmatch(line.encode()) is not None


def _open_file(path: Path, schema: Schema, labeled: bool) -> Source:
    if packing(path) == "parquet":
        return open_parquet(path)
    line, size = first_line(path)
    mark = len(BYTE_ORDER_MARK) if head(path, 3) == BYTE_ORDER_MARK else 0
    if is_libffm(line):
        columns = schema.source_columns
        return TextFile(path, columns, mark, _native.TextFormat.libffm(list(columns[1:])))
    wanted = schema.source_columns[0 if labeled else 1 :]
    cells = {separator: split_line(line, separator) for separator in SEPARATORS}
    for separator, names in cells.items():
        if set(wanted) <= set(names):
            return _separated(path, names, separator, size)
    names = max(cells.values(), key=lambda names: len(set(names) & set(wanted)))
    if not schema.columns or 2 * len(set(names) & set(wanted)) > len(wanted):  # a header that lacks some
        find_columns(names if schema.columns else max(cells.values(), key=len), wanted, f"{path} line 1")
    layouts = [schema.columns]
    if not labeled:
        layouts.append(tuple(name for name in schema.columns if name != schema.label))
    fits = [(mark, names) for names in layouts for mark in SEPARATORS if len(cells[mark]) == len(names)]
    separator, columns = (fits or [("\t", schema.columns)])[0]
    return _separated(path, columns, separator, mark)


def open_parquet(path: Path) -> Table:
    """Open a Parquet file, and count its rows: a damaged one must not end early unnoticed."""
    polars = require("polars", "train", "reading Parquet")
    frame = polars.scan_parquet(path, glob=False)
    with _readable(str(path)):
        return Table(str(path), frame, int(frame.select(polars.len()).collect().item()))


def _separated(path: Path, names: Sequence[str], separator: str, header_bytes: int) -> TextFile:
    format = _native.TextFormat(separator, separator == ",", len(names))
    return TextFile(path, tuple(names), header_bytes, format)


def _parts(table: Any, columns: Sequence[str], name: str) -> Iterator[Any]:
    if not hasattr(table, "collect_batches"):
        yield table
        return
    with _readable(name):
        find_columns(table.collect_schema().names(), columns, name)
        yield from table.select(list(columns)).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn whatever a table's library raises into one line."""
    try:
        yield
    except (Fm2Error, GeneratorExit):
        raise
    except Exception as wrong:
        reason = (str(wrong).splitlines() or [type(wrong).__name__])[0]
        raise Fm2Error(f"{name} cannot be read: {reason}") from wrong


def _next(reader: _native.ArrowReader, name: str) -> bool:
    with _readable(name):
        return reader.next()


def _count_rows(table: Any) -> int | None:
    rows = getattr(table, "num_rows", None)
    if rows is None and hasattr(table, "__len__"):
        rows = len(table)
    return None if rows is None else int(rows)


def _listing(names: Sequence[str], limit: int = 12) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
