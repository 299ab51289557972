"""A text file, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fm2.data.sources import BYTE_ORDER_MARK, TextFile
from fm2.data.streams import open_stream, read_into
from fm2.errors import Fm2Error

CHUNK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20


@dataclass
class Chunk:
    """A piece of a file: its text, the line on which it begins, and how many bytes of the file are read by now.

    Whoever takes it tells how much was ``consumed``, and how many ``lines`` that was; the rest comes again.
    """

    text: NDArray[np.uint8]
    last: bool
    line: int
    done: int
    consumed: int = 0
    lines: int = 0


def read_chunks(source: TextFile, operation: str) -> Iterator[Chunk]:
    """Read a file chunk by chunk; what a chunk holds of its last, cut row is moved before the next."""
    buffer = bytearray(2 * CHUNK_BYTES)
    filled, last, line = 0, False, 1 + bool(source.header_bytes > len(BYTE_ORDER_MARK))
    with open_stream(source.path) as (stream, packed):
        stream.read(source.header_bytes)
        while not last:
            count = read_into(stream, memoryview(buffer)[filled : filled + CHUNK_BYTES])
            filled, last = filled + count, count < CHUNK_BYTES
            chunk = Chunk(np.frombuffer(buffer, dtype=np.uint8, count=filled), last, line, packed.tell())
            yield chunk
            line += chunk.lines
            rest = filled - chunk.consumed
            buffer[:rest] = memoryview(buffer)[chunk.consumed : filled]
            filled = rest
            if rest + CHUNK_BYTES > len(buffer):
                if len(buffer) >= LONGEST_LINE:
                    limit = f"{LONGEST_LINE >> 20} MB; is the file text?"
                    raise Fm2Error(f"{operation}: {source} line {line} is longer than {limit}")
                buffer = buffer + bytearray(len(buffer))
