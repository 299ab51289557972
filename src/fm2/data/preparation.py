"""From raw logs to a prepared data set.

Three passes: the log is read once and every value gets a provisional number (:mod:`fm2.data.reading`); the numbers of
the training rows are counted, which makes the vocabularies; the numbers become ids, split by split.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.dataset import FORMAT, MANIFEST, SCHEMA, VERSION, VOCABULARIES, Dataset
from fm2.data.faults import FILE, BadRows, Policy
from fm2.data.npy import NpyWriter
from fm2.data.reading import LogReader
from fm2.data.scratch import Block, Scratch
from fm2.data.sources import open_sources
from fm2.data.splits import SPLITS, Assignment, check_fractions, ordered_split, random_split
from fm2.data.vocabulary import Vocabulary, save_vocabularies
from fm2.errors import Fm2Error
from fm2.presets import PRESETS
from fm2.progress import Progress
from fm2.schema import Field, Schema
from fm2.storage import checksum, new_directory

QUANTILE_SAMPLE = 1_000_000


def prepare(
    source: Any,
    schema: Schema | str | Path,
    out: str | Path,
    *,
    validation: Any = None,
    test: Any = None,
    split: Literal["random", "time"] = "random",
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    vocabulary: Literal["train", "all"] = "train",
    bad_rows: Policy = "stop",
    overwrite: bool = False,
    threads: int = 0,
    progress: bool | None = None,
) -> Dataset:
    """Turn raw logs into encoded rows in a new directory, and open it.

    ``source`` is a path, a glob, a table (polars, pandas, pyarrow), or a list of these; ``schema`` a :class:`Schema`, the
    name of a preset or the path of a TOML file. Rows are divided at random, or by time: the first timestamp field tells
    it, or the order of the rows where there is none. ``validation`` and ``test`` are sources of their own for these
    splits. The vocabularies count the training rows alone unless ``vocabulary`` is "all".

    >>> import polars, tempfile
    >>> table = polars.DataFrame({"click": [0, 1] * 50, "site": ["a", "b", "b", "c"] * 25})
    >>> dataset = prepare(table, Schema([Field("site")], label="click"), tempfile.mkdtemp() + "/data")
    >>> dataset.train.ids.shape[1], len(dataset.vocabularies[0])
    (1, 4)
    """
    schema = _find_schema(schema)
    for name, value, choices in (
        ("split", split, ("random", "time")),
        ("vocabulary", vocabulary, ("train", "all")),
        ("bad_rows", bad_rows, ("stop", "skip")),
    ):
        if value not in choices:
            raise Fm2Error(f"prepare: {name} is '{value}'; it is {' or '.join(choices)}")
    shares = check_fractions(fractions, (False, validation is not None, test is not None))
    roles = [(source, None), (validation, 1), (test, 2)]
    sources = [(found, role) for given, role in roles if given is not None for found in open_sources(given, schema)]
    time = next((field for field in schema.fields if field.kind == "timestamp"), None) if split == "time" else None
    with new_directory(Path(out), "prepare", MANIFEST, overwrite) as directory:
        bad = BadRows(directory, bad_rows)
        with Scratch(directory, len(schema.fields), time is not None) as scratch:
            reader = LogReader(schema, time, bad, scratch, threads)
            reader.read(sources, progress)
            if scratch.rows == 0:
                raise Fm2Error(f"prepare: all {bad.count} rows are bad; the first: {_first_line(bad.path)}")
            assign = _assignment(scratch, split, time is not None, shares, seed)
            work = _Work(schema, scratch, reader.collector, assign, vocabulary == "all", threads, progress)
            work.learn()
            written = work.write(directory)
        schema.save(directory / SCHEMA)
        save_vocabularies(directory / VOCABULARIES, work.vocabularies)
        extra = [SCHEMA, VOCABULARIES, *([FILE] if bad.count else [])]
        files = {name: {"bytes": (directory / name).stat().st_size, "sha256": checksum(directory / name)} for name in extra}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "splits": work.splits,
            "fields": work.fields,
            "bad_rows": {"count": bad.count, **bad.reasons},
            "sources": [{"name": str(found), "split": SPLITS[role] if role else split} for found, role in sources],
            "settings": {"split": split, "fractions": list(shares), "seed": seed, "vocabulary": vocabulary},
            "files": files | written,
        }
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
    return Dataset.open(out)


def _find_schema(schema: Schema | str | Path) -> Schema:
    if isinstance(schema, Schema):
        return schema
    return Schema.preset(schema) if isinstance(schema, str) and schema in PRESETS else Schema.load(schema)


def _first_line(path: Path) -> str:
    return path.read_bytes().split(b"\n")[1].decode(errors="backslashreplace").replace("\t", " ")[:200]


def _assignment(
    scratch: Scratch, split: str, timed: bool, shares: Sequence[float], seed: int
) -> Callable[[Block], Assignment]:
    """Make the rule by which a row gets its split."""

    def values(block: Block) -> NDArray[np.int64]:
        return block.times if timed else block.rows

    def divided() -> Iterator[NDArray[np.int64]]:
        return (values(block) for block in scratch.blocks(numbers=False) if block.split is None)

    def rule(rows: NDArray[np.int64]) -> Assignment:
        return random_split(rows, shares, seed)

    if split == "time":
        rule = ordered_split(divided, shares)
        return lambda block: _fixed(block) if block.split is not None else rule(values(block))
    return lambda block: _fixed(block) if block.split is not None else rule(block.rows)


def _fixed(block: Block) -> Assignment:
    return np.full(len(block.labels), block.split, dtype=np.uint8)


@dataclass
class _Work:
    """The second and the third pass."""

    schema: Schema
    scratch: Scratch
    collector: _native.Collector
    assign: Callable[[Block], Assignment]
    count_all: bool
    threads: int
    shown: bool | None

    def learn(self) -> None:
        """Count the splits, learn the quantiles, count the values: the vocabularies."""
        rows, clicks = np.zeros(3, np.int64), np.zeros(3, np.int64)
        for block in self.scratch.blocks(numbers=False):
            split = self.assign(block)
            rows += np.bincount(split, minlength=3)
            clicks += np.bincount(split, weights=block.labels, minlength=3).astype(np.int64)
        self._rows = rows
        self.splits = {
            name: {"rows": int(rows[i]), "clicks": int(clicks[i])} for i, name in enumerate(SPLITS)
        }
        if rows[0] == 0:
            raise Fm2Error(f"prepare: none of the {self.scratch.rows} rows is for training; more rows are needed")
        self._boundaries = self._learn_quantiles()
        counts = [np.zeros(self._size(index), np.int64) for index in range(len(self.schema.fields))]
        for block in self._blocks("counting"):
            wanted = np.ones(len(block.labels), np.uint8) if self.count_all else (self.assign(block) == 0).astype(np.uint8)
            _native.count_numbers(block.numbers, wanted, counts, self.threads)
        made = [self._vocabulary(index, field, counts[index]) for index, field in enumerate(self.schema.fields)]
        self.vocabularies = [vocabulary for vocabulary, _ in made]
        self._ids_of = [ids for _, ids in made]
        self._dropped = [
            int(np.count_nonzero(count)) - len(vocabulary.counts) if not vocabulary.hashed else 0
            for count, vocabulary in zip(counts, self.vocabularies, strict=True)
        ]

    def write(self, directory: Path) -> dict[str, dict[str, Any]]:
        """Write the rows of each split; give the sizes and checksums of the files."""
        fields = len(self.schema.fields)
        writers = {
            (split, name): NpyWriter(directory / split / f"{name}.npy", (int(rows), *shape), kind)
            for split, rows in zip(SPLITS, self._rows, strict=True)
            for name, shape, kind in (("ids", (fields,), np.int32), ("labels", (), np.uint8), ("rows", (), np.int64))
        }
        unknown = np.zeros((3, fields), np.int64)
        for block in self._blocks("writing"):
            split = self.assign(block)
            order = np.argsort(split, kind="stable").astype(np.int32)
            ids = np.empty((len(order), fields), np.int32)
            _native.write_rows(block.numbers, order, self._ids_of, ids, self.threads)
            ends = np.cumsum(np.bincount(split, minlength=3))
            for i, (name, end) in enumerate(zip(SPLITS, ends, strict=True)):
                part = slice(ends[i - 1] if i else 0, end)
                unknown[i] += (ids[part] == 0).sum(axis=0)
                writers[name, "ids"].append(ids[part])
                writers[name, "labels"].append(block.labels[order[part]])
                writers[name, "rows"].append(block.rows[order[part]])
        self.fields = [
            {
                "name": field.name,
                "features": len(self.vocabularies[i]),
                "dropped": self._dropped[i],
                "unknown": {split: int(unknown[s, i]) for s, split in enumerate(SPLITS)},
            }
            for i, field in enumerate(self.schema.fields)
        ]
        return {f"{split}/{name}.npy": writer.close() for (split, name), writer in writers.items()}

    def _blocks(self, title: str) -> Iterator[Block]:
        """Give the blocks, with the numbers of fields of quantiles made from their values."""
        done = 0
        with Progress(title, self.scratch.rows, self.shown) as progress:
            for block in self.scratch.blocks():
                for index, boundaries in self._boundaries.items():
                    values = block.numbers[index].view(np.float32)
                    buckets = np.searchsorted(boundaries, values, side="right")
                    block.numbers[index] = np.where(np.isnan(values), len(boundaries) + 1, buckets)
                yield block
                done += len(block.labels)
                progress.update(done, done)

    def _learn_quantiles(self) -> dict[int, NDArray[np.float32]]:
        """Find boundaries between buckets of equal size, from at most a million training rows, evenly taken."""
        fields = {i: field for i, field in enumerate(self.schema.fields) if field.transform == "quantiles"}
        if not fields:
            return {}
        step, seen = -(-int(self._rows[0]) // QUANTILE_SAMPLE), 0
        samples: dict[int, list[NDArray[np.float32]]] = {index: [] for index in fields}
        for block in self.scratch.blocks():
            training = np.flatnonzero(self.assign(block) == 0)
            chosen = training[(-seen) % step :: step]
            seen += len(training)
            for index in fields:
                samples[index].append(block.numbers[index, chosen].view(np.float32))
        return {index: _quantiles(np.concatenate(samples[index]), field.buckets) for index, field in fields.items()}

    def _size(self, index: int) -> int:
        """Tell how many different numbers a field can have."""
        if index in self._boundaries:
            return len(self._boundaries[index]) + 2
        bits = self.schema.fields[index].hash_bits
        return 1 << bits if bits else self.collector.size(index)

    def _vocabulary(
        self, index: int, field: Field, counts: NDArray[np.int64]
    ) -> tuple[Vocabulary, NDArray[np.int32]]:
        """Give ids to the values that are frequent enough, by falling frequency, and the id of every number."""
        if field.hash_bits:
            hashed = Vocabulary.of([], counts.tolist())
            return dataclasses.replace(hashed, hashed=len(counts)), np.arange(1, len(counts) + 1, dtype=np.int32)
        kept = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts >= field.min_count)]
        ids = np.zeros(len(counts), np.int32)
        ids[kept] = np.arange(1, len(kept) + 1)
        boundaries = self._boundaries.get(index)
        if boundaries is not None:
            texts = [str(number) if number <= len(boundaries) else "" for number in kept.tolist()]
            vocabulary = Vocabulary.of(texts, counts[kept].tolist())
            return dataclasses.replace(vocabulary, boundaries=boundaries), ids
        data, ends = self.collector.texts(index, kept)
        none = np.empty(0, np.float32)
        return Vocabulary(np.frombuffer(data, np.uint8), np.array(ends, np.uint64), counts[kept], none), ids


def _quantiles(values: NDArray[np.float32], buckets: int) -> NDArray[np.float32]:
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return values
    shares = np.arange(1, buckets) / buckets
    boundaries = np.unique(np.quantile(values, shares, method="higher")).astype(np.float32)
    return boundaries[boundaries > values.min()]
