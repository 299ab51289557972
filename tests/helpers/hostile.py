"""Change a compiled model in many ways, open each variant, and score with those that are not rejected.

``python hostile.py MODEL FOLDER SEED COUNT`` prints how many variants were rejected and how many scored. It is a
separate program so that a crash is detected. Checksums are updated, so that the parser is tested and not the checksum.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import numpy as np

from fm2 import _native
from fm2.data.rows import EncodedRows, Lists
from fm2.engine.inspect import inspect
from fm2.engine.model_file import INDEX_ENTRY, LINE, align
from fm2.engine.plans import LANES
from fm2.engine.scorer import Scorer, load
from fm2.errors import Fm2Error

MEMORY = 4 << 30
NUMBERS = [0, 1, 2, 3, 7, 31, 63, 64, 255, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62]
NUMBERS += [(1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1, 0x7FC00000, 0x7F800000]
VALUES = [
    "",
    "a",
    "none",
    "news.example",
    "a longer name than eight bytes",
    "17",
    "-3",
    "1e400",
    "@-9223372036854775808",
]
VALUES += ["2024-05-05 05:05:05", "x" * 1000, "\0", "ü", "nan", "0x10", "v1|v2|v1", "v1:2|v2:0", "|||", "v3:-1|v1:x"]
# Sections that may contain any numbers, or are read by Python.
UNCHECKED = ("meta", "rows", "pairs", "matrices", "signs", "network.values", "network.biases", "network.last")


class Mutant:
    """The bytes of a model that can be changed and written with a valid header."""

    def __init__(self, original: bytes, random: np.random.Generator) -> None:
        self.bytes, self.random = np.frombuffer(original, np.uint8).copy(), random
        self.sections = int(self.bytes[12:16].view("<u4")[0])
        self.index = self.bytes[LINE : LINE + self.sections * LINE].view(INDEX_ENTRY)
        self.entries = [(int(row["offset"]), int(row["bytes"])) for row in self.index]  # before changes
        self.checked = [i for i, row in enumerate(self.index) if row["name"].decode() not in UNCHECKED and row["bytes"]]

    def change(self) -> None:
        changes = [self.number, self.number, self.number, self.byte, self.extent, self.rename, self.exchange]
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            changes[self.random.integers(len(changes))]()

    def section(self) -> tuple[int, int]:
        nonempty = [i for i, (_, size) in enumerate(self.entries) if size]
        return self.entries[self.random.choice(self.checked if self.random.random() < 0.9 else nonempty)]

    def number(self) -> None:
        """Set a number of 4 or 8 bytes to a value that is likely to be invalid."""
        begin, size = self.section()
        width = int(self.random.choice([4, 8])) if size >= 8 else min(size, 4)
        at = begin + int(self.random.integers(size // width)) * width
        value = int.from_bytes(self.bytes[at : at + width].tobytes(), "little")
        near = [value + 1, value - 1, value * 2, value // 2, -value]
        value = int(near[self.random.integers(5)] if self.random.random() < 0.4 else self.random.choice(NUMBERS))
        self.bytes[at : at + width] = np.frombuffer((value % 256**width).to_bytes(width, "little"), np.uint8)

    def byte(self) -> None:
        begin, size = self.section()
        self.bytes[begin + self.random.integers(size)] ^= self.random.integers(1, 256)

    def extent(self) -> None:
        """Change where a section begins or ends."""
        row, column = self.random.integers(self.sections), self.random.choice(["offset", "bytes"])
        old = int(self.index[row][column])
        near = [old + 1, old - 1, old + 64, old - 64, old - 4, old - 8, old - 16, old * 2, old // 2, 0, len(self.bytes)]
        self.index[column][row] = int(self.random.choice(near + NUMBERS)) % (1 << 64)

    def rename(self) -> None:
        target, source = self.random.integers(self.sections, size=2)
        self.index["name"][target] = self.index["name"][source]

    def exchange(self) -> None:
        """Give a section the extent of another."""
        target, source = self.random.integers(self.sections, size=2)
        for column in ("offset", "bytes"):
            self.index[column][target] = self.index[column][source]

    def write(self, path: Path) -> None:
        sections = self.sections if self.random.random() < 0.95 else int(self.random.choice(NUMBERS)) % (1 << 32)
        path.write_bytes(self.sealed(sections))

    def sealed(self, sections: int) -> bytes:
        return _native.model_header(sections, self.bytes[LINE:], 1) + self.bytes[LINE:].tobytes()


def with_section(model: bytes, name: bytes, content: bytes) -> bytes:
    """Return a model with another section of that name, appended to it."""
    mutant = Mutant(model + content, np.random.default_rng(0))
    entry = [row["name"] for row in mutant.index].index(name)
    mutant.index["offset"][entry], mutant.index["bytes"][entry] = len(model), len(content)
    return mutant.sealed(mutant.sections)


def extreme_rows(scorer: Scorer, random: np.random.Generator) -> EncodedRows:
    """Return the first and last features of every field, and random ones; lists have up to eight of them."""
    sizes = np.array(scorer.native.sizes)
    ids = np.stack([np.zeros_like(sizes), sizes - 1, *(random.integers(0, sizes, (6, len(sizes))))]).astype(np.int32)
    lists = {}
    for field in np.flatnonzero(scorer.native.lists).tolist():
        lists[field] = Lists.of([ids[:row, field].tolist() for row in range(1, 9)])
        ids[:, field] = np.arange(8)
    return EncodedRows(ids, lists)


def use(scorer: Scorer, random: np.random.Generator) -> None:
    """Score, explain and rank the first and last features of every field, and score rows of values."""
    rows = extreme_rows(scorer, random)
    assert scorer.predict(rows).shape == (8,)
    if not scorer.is_network:
        assert len(scorer.explain(rows[1:2]).fields) == len(scorer.native.sizes)
    with contextlib.suppress(ValueError):  # Poly2 cannot rank, and networks have no catalogs
        ranking = _native.Ranking(scorer.native, [0])
        context, candidates = np.ascontiguousarray(rows.ids[1, :1]), np.ascontiguousarray(rows.ids[:, 1:])
        context_lists, candidate_lists = rows.native_lists()[:1], rows.native_lists()[1:]
        lists = {"context_lists": context_lists, "candidate_lists": candidate_lists}
        ranking.rank(context, candidates, 3, 1, **lists)
        catalog = np.empty((8, align(ranking.width + 1, LANES)), np.float32)
        ranking.describe(candidates, catalog, 1, lists=candidate_lists)
        ranking.top(context, catalog, 3, 1, lists=context_lists)
    values = [dict(zip(scorer.columns, random.choice(VALUES, len(scorer.columns)), strict=True)) for _ in range(8)]
    encoded = scorer.encode_rows(values)
    assert sorted(encoded.lists) == np.flatnonzero(scorer.native.lists).tolist()
    for field, size in enumerate(scorer.native.sizes):
        ids = encoded.lists[field].ids if field in encoded.lists else encoded.ids[:, field]
        assert (ids >= 0).all()
        assert (ids < size).all()
    assert scorer.predict(encoded).shape == (8,)


def main(model: str, folder: str, seed: str, count: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    original, path, random = Path(model).read_bytes(), Path(folder) / "mutant.fm2", np.random.default_rng(int(seed))
    rejected = 0
    for _ in range(int(count)):
        path.unlink(missing_ok=True)
        mutant = Mutant(original, random)
        mutant.change()
        mutant.write(path)
        try:
            use(load(path, verify=False, threads=1), random)
            inspect(path)
        except Fm2Error:
            rejected += 1
    print(rejected, int(count) - rejected)


if __name__ == "__main__":
    main(*sys.argv[1:])
