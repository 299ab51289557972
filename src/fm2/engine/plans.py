"""The sections of a compiled model, for each way of scoring it (native/include/fm2/plans.h says how they lie)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.compression.weights import Floats, Weights
from fm2.engine.model_file import Bytes, rounded

Dtype = Literal["f32", "f16", "i8"]
NUMBERS: dict[Dtype, int] = {"f32": 0, "f16": 1, "i8": 2}
PREFIXES, SQUARES, PARTNERS = 0, 1, 2
PIECE = 1 << 16  # features whose rows are made at once

Sections = dict[str, NDArray[Any] | int]


@dataclass(frozen=True)
class Plan:
    """Sections, and who writes the rows of features into the one that is only a size; it tells the rounding error."""

    title: str
    sections: Sections
    write_rows: Callable[[Bytes], float]


def padded(count: int) -> int:
    """Round up to a multiple of eight, as rows are read."""
    return -(-count // 8) * 8


def head(form: int, dtype: Dtype, fields: int, dim: int = 0, hash_bits: int = 0, diagonal: bool = False) -> Any:
    """Give the section that says what the others mean."""
    return np.array([form, NUMBERS[dtype], fields, dim, hash_bits, diagonal], np.int64)


def common(weights: Weights) -> Sections:
    """Give the sections that every plan has."""
    return {"sizes": np.array(weights.sizes, np.int32), "bias": np.array([weights.bias], np.float32)}


class RowWriter:
    """Writes rows of features, block after block, each from a whole cache line on."""

    def __init__(self, dtype: Dtype, out: Bytes) -> None:
        self._number, self._out, self._at, self.error = NUMBERS[dtype], out, 0, 0.0

    def write(self, count: int, rows: Callable[[slice], tuple[Floats | None, Floats | None, Floats]]) -> None:
        """Write ``count`` rows: ``rows`` gives the first part, the second part and the linear weight of some."""
        for begin in range(0, count, PIECE):
            first, second, linear = (
                None if part is None else np.ascontiguousarray(part, np.float32)
                for part in rows(slice(begin, min(begin + PIECE, count)))
            )
            assert linear is not None
            widths = [0 if part is None else part.shape[1] for part in (first, second)]
            size = len(linear) * _native.row_bytes(self._number, *widths)
            found = _native.pack_rows(self._number, first, second, linear, self._out[self._at : self._at + size])
            self.error, self._at = max(self.error, found), self._at + size
        self._at = rounded(self._at)


@dataclass(frozen=True)
class Meeting:
    """What a field meets of the fields before it, and its matrix there: D × columns, or diagonals, 1 × columns.

    The columns are numbers of the row of embeddings, eight side by side at a time; those where the matrix is zero,
    as it is with pruned pairs, are only there if they stand among others.
    """

    columns: NDArray[np.int64]
    matrix: Floats

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """Where columns stand side by side: begin and length."""
        ends = np.flatnonzero(np.diff(self.columns) != 1) + 1
        return [(int(part[0]), len(part)) for part in np.split(self.columns, ends) if len(part)]


def meetings(weights: Weights, order: Sequence[int]) -> Iterator[Meeting]:
    """Give what every field meets, of fields in this order."""
    for place, field in enumerate(order):
        # Of FwFM and FvFM only the diagonals of the blocks
        parts = [np.atleast_2d(weights.block(field, other)) for other in order[:place]]
        rows = weights.dims[field] if weights.spec.has_full_matrices else 1
        matrix = np.concatenate([np.zeros((rows, 0), np.float32), *parts, np.zeros((rows, 8), np.float32)], axis=1)
        columns = _octets(np.flatnonzero(matrix.any(axis=0)))
        yield Meeting(columns, matrix[:, columns])


def _octets(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cover numbers, which rise, with as few runs of eight as can be.

    >>> _octets(np.array([2, 4, 10, 17])).tolist()
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    """
    begins: list[int] = []
    for number in wanted:
        if not begins or number >= begins[-1] + 8:
            begins.append(int(number))
    return (np.array(begins, np.int64)[:, None] + np.arange(8)).ravel()


def prefixes(weights: Weights, order: Sequence[int], cached: Sequence[int], dtype: Dtype, title: str) -> Plan:
    """Plan a model of FwFM, FvFM or FmFM: fields in this order, so many features of each with cached products."""
    number, diagonal = NUMBERS[dtype], not weights.spec.has_full_matrices
    dims = [weights.dims[field] for field in order]
    meets = list(meetings(weights, order))
    size = 0
    for field, many, dim, meeting in zip(order, cached, dims, meets, strict=True):
        size += rounded(many * _native.row_bytes(number, len(meeting.columns), dim))
        size += rounded((weights.sizes[field] - many) * _native.row_bytes(number, 0, dim))

    def write_rows(out: Bytes) -> float:
        writer = RowWriter(dtype, out)
        for field, many, meeting in zip(order, cached, meets, strict=True):
            table, linear = weights.embeddings[field], weights.linear[field]

            def whole(some: slice, table: Floats = table, linear: Floats = linear, meeting: Meeting = meeting) -> Any:
                own, matrix = table[some], meeting.matrix
                products = own[:, meeting.columns % own.shape[1]] * matrix if diagonal else own @ matrix
                return products, own, linear[some]

            def rest(some: slice, table: Floats = table[many:], linear: Floats = linear[many:]) -> Any:
                return None, table[some], linear[some]

            writer.write(many, whole)
            writer.write(weights.sizes[field] - many, rest)
        return writer.error

    sections: Sections = {
        "plan": head(PREFIXES, dtype, len(order), diagonal=diagonal),
        **common(weights),
        "order": np.array(order, np.int32),
        "dims": np.array(dims, np.int32),
        "cached": np.array(cached, np.int32),
        "stretches": np.array([(p, *part) for p, meeting in enumerate(meets) for part in meeting.stretches], np.int32),
        "matrix": _aligned([meeting.matrix for meeting in meets]),
        "rows": size,
    }
    return Plan(title, sections, write_rows)


def _aligned(matrices: Sequence[Floats]) -> Floats:
    """Put matrices behind one another, each from a whole cache line on."""
    parts = [np.pad(matrix.ravel(), (0, rounded(matrix.nbytes) // 4 - matrix.size)) for matrix in matrices]
    return np.concatenate(parts)


def squares(
    weights: Weights, features: Callable[[int, slice], tuple[Floats, Floats]], signs: Floats, dtype: Dtype, title: str
) -> Plan:
    """Plan sums and squares: ``features`` gives the vectors and linear weights of some features of a field."""
    number, rank = NUMBERS[dtype], len(signs)
    stride = _native.row_bytes(number, rank, 0)
    hash_bits = 0 if weights.pairs is None else int(weights.config["hash_bits"])

    def write_rows(out: Bytes) -> float:
        writer = RowWriter(dtype, out)
        for field, size in enumerate(weights.sizes):

            def rows(some: slice, field: int = field) -> Any:
                vectors, linear = features(field, some)
                return (vectors if rank else None), None, linear

            writer.write(size, rows)
        return writer.error

    sections: Sections = {
        "plan": head(SQUARES, dtype, len(weights.sizes), rank, hash_bits),
        **common(weights),
        "signs": np.pad(signs.astype(np.float32), (0, padded(rank) - rank)),
        "rows": sum(rounded(size * stride) for size in weights.sizes),
    }
    if weights.pairs is not None:
        sections["pairs"] = weights.pairs
    return Plan(title, sections, write_rows)


def sums(weights: Weights, dtype: Dtype) -> Plan:
    """Plan LR or Poly2: sums of weights."""
    nothing = np.empty(0, np.float32)

    def features(field: int, some: slice) -> tuple[Floats, Floats]:
        return nothing, weights.linear[field][some]

    return squares(weights, features, nothing, dtype, "sums")


def machine(weights: Weights, dtype: Dtype) -> Plan:
    """Plan FM: the square of the sum of all embeddings."""

    def features(field: int, some: slice) -> tuple[Floats, Floats]:
        return weights.embeddings[field][some], weights.linear[field][some]

    return pairs(weights, features, weights.signs, dtype, "sum of embeddings")


def pairs(
    weights: Weights, features: Callable[[int, slice], tuple[Floats, Floats]], signs: Floats, dtype: Dtype, title: str
) -> Plan:
    """Plan half the signed square of the sum of vectors, less what each of them has with itself."""
    halves = signs * np.float32(0.5)

    def alone(field: int, some: slice) -> tuple[Floats, Floats]:
        vectors, linear = features(field, some)
        return vectors, linear - np.square(vectors) @ halves

    return squares(weights, alone, halves, dtype, title)


def partners(weights: Weights, dtype: Dtype) -> Plan:
    """Plan FFM: for every pair, the two vectors that are meant for each other."""
    dim = int(weights.config["dim"])
    stride = _native.row_bytes(NUMBERS[dtype], 0, weights.dims[0])

    def write_rows(out: Bytes) -> float:
        writer = RowWriter(dtype, out)
        for table, linear in zip(weights.embeddings, weights.linear, strict=True):

            def rows(some: slice, table: Floats = table, linear: Floats = linear) -> Any:
                return None, table[some], linear[some]

            writer.write(len(linear), rows)
        return writer.error

    sections: Sections = {
        "plan": head(PARTNERS, dtype, len(weights.sizes), dim),
        **common(weights),
        "rows": sum(rounded(size * stride) for size in weights.sizes),
    }
    return Plan("pairs of vectors", sections, write_rows)


def orders(weights: Weights) -> Iterator[tuple[str, list[int]]]:
    """Give the orders of fields worth trying.

    By dimension, each pair costs the lower of its two dimensions (section 4.3 of the paper). By size, features of
    large fields, which are rarely in a cache, have short rows, and long rows are those of few features.
    """
    fields = range(len(weights.sizes))
    yield "by dimension", sorted(fields, key=lambda field: (weights.dims[field], -weights.sizes[field]))
    yield "by size", sorted(fields, key=lambda field: -weights.sizes[field])


def affordable(weights: Weights, order: Sequence[int], dtype: Dtype, memory: float) -> list[int]:
    """Tell how many features of each field can have cached products: the most useful ones, while there is memory.

    A feature is worth its frequency times the arithmetic that it saves, over the bytes that it takes.
    """
    number, worth, extra = NUMBERS[dtype], [], []
    for field, meeting in zip(order, meetings(weights, order), strict=True):
        dim, products = weights.dims[field], len(meeting.columns)
        more = _native.row_bytes(number, products, dim) - _native.row_bytes(number, 0, dim)
        counts = np.minimum.accumulate(weights.counts(field))  # ids come in the order of frequency, or nearly so
        worth.append(counts * (dim * products / more if more else 0.0))
        extra.append(np.full(len(counts), float(more)))
    places = np.repeat(np.arange(len(order)), [len(part) for part in worth])
    best = np.argsort(-np.concatenate(worth), kind="stable")
    kept = best[np.cumsum(np.concatenate(extra)[best]) <= memory]
    return [int(count) for count in np.bincount(places[kept], minlength=len(order))]
