"""Text files: detect their format, and read them in chunks."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.decompress import START_BYTES, file_size, open_stream, read_start
from fm2.errors import Fm2Error, suggest
from fm2.remote.streams import LogFile
from fm2.schema import Schema

SEPARATORS = "\t,;|\x01"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LIBFFM_LINE = re.compile(rb"[+-]?[0-9.]+([ \t]+\d+:[^\s:]+:[^\s:]+)+\s*")
CHUNK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20


@dataclass(frozen=True)
class TextFile:
    """A file of separated values, or in the libffm format."""

    path: LogFile
    names: tuple[str, ...]
    header_bytes: int
    format: _native.TextFormat
    is_libffm: bool = False

    def __str__(self) -> str:
        return str(self.path)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return file_size(self.path)

    def positions(self, columns: Sequence[str]) -> list[int]:
        """Return the positions of columns in a row."""
        return find_columns(self.names, columns, str(self))


@dataclass
class Chunk:
    """A piece of a file: its text, the line where it begins, and the number of bytes of the file read so far.

    The consumer sets how many bytes it ``consumed``, and how many ``lines`` they contain. The next chunk starts with
    the bytes that were not consumed.
    """

    text: NDArray[np.uint8]
    last: bool
    line: int
    bytes_read: int
    consumed: int = 0
    lines: int = 0


def read_chunks(source: TextFile, operation: str) -> Iterator[Chunk]:
    """Yield a file in chunks. An incomplete row at the end of a chunk is moved to the beginning of the next chunk."""
    buffer = bytearray(2 * CHUNK_BYTES)
    filled = 0
    line = 2 if source.header_bytes > len(BYTE_ORDER_MARK) else 1
    last = False
    with open_stream(source.path) as (stream, file):
        stream.read(source.header_bytes)
        while not last:
            count = stream.readinto(memoryview(buffer)[filled : filled + CHUNK_BYTES])
            has_line_end = buffer.find(b"\n", filled, filled + count) >= 0
            filled += count
            last = count < CHUNK_BYTES
            if last or has_line_end:  # otherwise there is no complete row yet
                chunk = Chunk(np.frombuffer(buffer, np.uint8, filled), last, line, file.tell())
                yield chunk
                line += chunk.lines
                remaining = filled - chunk.consumed
                buffer[:remaining] = memoryview(buffer)[chunk.consumed : filled]
                filled = remaining
            if filled > LONGEST_LINE:
                limit = f"{LONGEST_LINE >> 20} MB; is this a text file?"
                raise Fm2Error(f"{operation}: {source} line {line} is longer than {limit}")
            if filled + CHUNK_BYTES > len(buffer):
                larger = bytearray(2 * len(buffer))
                larger[:filled] = memoryview(buffer)[:filled]
                buffer = larger


def find_columns(names: Sequence[str], required: Sequence[str], where: str) -> list[int]:
    """Return the positions of the required columns among the names; an error says ``where`` one is missing."""
    positions: dict[str, int] = {}
    repeated = {name for index, name in enumerate(names) if positions.setdefault(name, index) != index}
    for name in required:
        if name not in positions:
            hint = suggest(name, names, used=required)
            raise Fm2Error(f"{where} has no column '{name}'; {hint if '?' in hint else f'it has {_quoted(names)}'}")
        if name in repeated:
            raise Fm2Error(f"{where} has two columns '{name}'; rename one of them; it has {_quoted(names)}")
    return [positions[name] for name in required]


def _quoted(names: Sequence[str], limit: int = 12) -> str:
    quoted = ", ".join(f"'{name}'" for name in names[:limit])
    return quoted + (f" and {len(names) - limit} more" if len(names) > limit else "")


def open_text_file(path: LogFile, schema: Schema, labeled: bool) -> TextFile:
    """Detect the format of a text file. The columns come from its header, or from the schema if it has none."""
    line, header_bytes = first_line(path)
    mark_bytes = len(BYTE_ORDER_MARK) if read_start(path, len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
    if is_libffm(line):
        fields = list(schema.feature_columns)
        multivalued = [field.column for field in schema.fields if field.multivalued]
        weighted = [field.column for field in schema.fields if field.weighted and not field.weight_column]
        format = _native.TextFormat.libffm(fields, multivalued, weighted)
        return TextFile(path, (schema.label, *fields), mark_bytes, format, is_libffm=True)
    required = schema.source_columns if labeled else schema.feature_columns
    cells = {separator: split_line(line, separator) for separator in SEPARATORS}
    for separator, names in cells.items():
        if set(required) <= set(names):
            return _separated(path, names, separator, header_bytes)
    _check_is_not_header(list(cells.values()), schema, required, path)
    return _separated(path, *_headerless_layout(cells, schema, labeled), mark_bytes)


def _check_is_not_header(
    splittings: Sequence[list[str]], schema: Schema, required: Sequence[str], path: LogFile
) -> None:
    """Raise an error if the first line is a header that lacks columns, or if it has to be one."""
    known, best = max(((len(set(names) & set(required)), names) for names in splittings), key=lambda pair: pair[0])
    if not schema.columns:
        find_columns(max(splittings, key=len), required, f"{path} line 1")
    elif 2 * known > len(required):
        find_columns(best, required, f"{path} line 1")


def _headerless_layout(cells: dict[str, list[str]], schema: Schema, labeled: bool) -> tuple[Sequence[str], str]:
    """Return the column names and the separator that fit the number of cells in the first line."""
    without_label = [name for name in schema.columns if name != schema.label]
    without_targets = [name for name in schema.columns if name not in schema.target_columns]
    for names in (schema.columns,) if labeled else (schema.columns, without_label, without_targets):
        for separator in SEPARATORS:
            if len(cells[separator]) == len(names):
                return names, separator
    return schema.columns, "\t"


def _separated(path: LogFile, names: Sequence[str], separator: str, header_bytes: int) -> TextFile:
    format = _native.TextFormat(separator, separator == ",", len(names))
    return TextFile(path, tuple(names), header_bytes, format)


def split_line(line: str, separator: str) -> list[str]:
    """Split a line into cells. Only comma-separated files use quotes."""
    if separator == "," and '"' in line:
        with contextlib.suppress(csv.Error):  # a stray carriage return or an unclosed quote: not a header
            return next(csv.reader([line]))
    return line.split(separator)


def first_line(path: LogFile) -> tuple[str, int]:
    """Return the first line of a text file, and the number of bytes it takes including the line end."""
    start = read_start(path)
    if b"\n" not in start and len(start) == START_BYTES:  # thousands of columns
        start = read_start(path, LONGEST_LINE)
    if not start.strip():
        raise Fm2Error(f"{path} is empty")
    if b"\x00" in start[:4096] or start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Fm2Error(f"{path} is not UTF-8 text: it starts with zero bytes or a UTF-16 byte order mark")
    line = start.split(b"\n", 1)[0]
    size = min(len(line) + 1, len(start))
    try:
        return line.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r").decode(), size
    except UnicodeDecodeError as error:
        raise Fm2Error(f"{path} line 1 is not UTF-8 text: {error.reason}") from error


def is_libffm(line: str) -> bool:
    """Return whether a line is in the libffm format, ``label field:feature:value ...``."""
    return LIBFFM_LINE.fullmatch(line.encode()) is not None
