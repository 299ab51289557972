"""The passes over a log that follow its reading: counting, which makes the vocabularies, and writing the ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.npy import NpyWriter
from fm2.data.scratch import Block, Scratch
from fm2.data.splits import SPLITS, Assignment
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.schema import Field, Schema

QUANTILE_SAMPLE = 1_000_000


@dataclass
class Passes:
    """The second and the third pass over the blocks that the first one left."""

    schema: Schema
    known: Sequence[Vocabulary]  # of older rows: their boundaries are taken, and none of their values is too rare
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
        self.splits = {name: {"rows": int(rows[i]), "clicks": int(clicks[i])} for i, name in enumerate(SPLITS)}
        if rows[0] == 0 and not self.known:
            raise Fm2Error(f"prepare: none of the {self.scratch.rows} rows is for training; more rows are needed")
        self._boundaries = self._learn_quantiles()
        counts = [np.zeros(self._size(index), np.int64) for index in range(len(self.schema.fields))]
        for block in self._blocks("counting"):
            wanted = (
                np.ones(len(block.labels), np.uint8) if self.count_all else (self.assign(block) == 0).astype(np.uint8)
            )
            _native.count_numbers(block.numbers, wanted, counts, self.threads)
        made = [self._vocabulary(index, field, counts[index]) for index, field in enumerate(self.schema.fields)]
        self.vocabularies = [vocabulary for vocabulary, _ in made]
        self._ids_of = [ids for _, ids in made]
        self._dropped = [
            int(np.count_nonzero((count > 0) & (ids == 0))) for count, ids in zip(counts, self._ids_of, strict=True)
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
        if self.known or not fields:
            return {index: self.known[index].boundaries for index in fields}
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

    def _vocabulary(self, index: int, field: Field, counts: NDArray[np.int64]) -> tuple[Vocabulary, NDArray[np.int32]]:
        """Give ids to the values that are frequent enough, by falling frequency, and the id of every number."""
        if field.hash_bits:
            hashed = dataclasses.replace(Vocabulary.of([]), counts=counts, hashed=len(counts))
            return hashed, np.arange(1, len(counts) + 1, dtype=np.int32)
        frequent = counts >= field.min_count
        if self.known:
            frequent |= self._is_known(index, np.flatnonzero(~frequent), len(counts))
        order = np.argsort(-counts, kind="stable")
        kept = order[frequent[order]]
        ids = np.zeros(len(counts), np.int32)
        ids[kept] = np.arange(1, len(kept) + 1)
        vocabulary = dataclasses.replace(self._texts(index, kept), counts=counts[kept])
        return (vocabulary.with_values_of(self.known[index], keep_counts=False) if self.known else vocabulary), ids

    def _is_known(self, index: int, rare: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
        """Tell which of the rare numbers of a field stand for values that are known from older rows."""
        found = np.zeros(size, np.bool_)
        found[rare] = self._texts(index, rare).ids_in(self.known[index])[1:] > 0
        return found

    def _texts(self, index: int, numbers: NDArray[np.int64]) -> Vocabulary:
        """Give the values that numbers of a field stand for."""
        boundaries = self._boundaries.get(index)
        if boundaries is not None:
            texts = [str(number) if number <= len(boundaries) else "" for number in numbers.tolist()]
            return dataclasses.replace(Vocabulary.of(texts), boundaries=boundaries)
        data, ends = self.collector.texts(index, numbers)
        nothing = Vocabulary.of([])
        return dataclasses.replace(nothing, data=np.frombuffer(data, np.uint8), ends=np.array(ends, np.uint64))


def _quantiles(values: NDArray[np.float32], buckets: int) -> NDArray[np.float32]:
    largest = np.finfo(np.float32).max  # numbers beyond have become infinite; a boundary has to be a number
    values = np.clip(values[~np.isnan(values)], -largest, largest)
    if len(values) == 0:
        return values
    shares = np.arange(1, buckets) / buckets
    boundaries = np.unique(np.quantile(values, shares, method="higher").astype(np.float32))
    kept: NDArray[np.float32] = boundaries[boundaries > values.min()]
    return kept
