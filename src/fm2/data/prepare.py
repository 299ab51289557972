"""Turn raw logs into a prepared dataset.

The log is read once. Every value gets a code, the number of its first appearance in its field, and the codes go to a
scratch file (:mod:`fm2.data.log_reader`). Counting the codes of the training rows yields the vocabularies
(:mod:`fm2.data.counting`). Then the codes are replaced with ids and written, split by split. A random split depends on
the row number alone, so the codes are counted while the log is read; a split by time is known only after that, and
takes another pass over the scratch file.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fm2 import _native
from fm2.cpu import check_threads
from fm2.data import counting
from fm2.data.bad_rows import BAD_ROWS, BadRows, Policy
from fm2.data.dataset import FORMAT, MANIFEST, SCHEMA, VERSION, VOCABULARIES, Dataset
from fm2.data.encoder import Encoder
from fm2.data.log_reader import Block, LogReader, ScratchRows
from fm2.data.sources import Source, open_sources
from fm2.data.splits import SPLITS, check_fractions, ordered_split, random_split
from fm2.data.vocabulary import save_vocabularies
from fm2.errors import Fm2Error, printable
from fm2.files import atomic_directory, checksum
from fm2.progress import Progress
from fm2.schema import Schema


def prepare(
    source: Any,
    schema: Schema | Dataset | Encoder | str | Path,
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

    ``source`` is a path, a glob pattern, a DataFrame (polars, pandas, pyarrow), or a list of these. ``schema`` is a
    :class:`Schema`, the name of a preset, or the path of a TOML file. It can also be a dataset of older rows or the
    encoder of a model: then their schema, quantile boundaries and all of their values are kept, so that a model trained
    on the older rows can be trained further on the new ones.

    Rows are split at random, or by time: by the first timestamp field, or by the order of the rows if there is none.
    ``validation`` and ``test`` are separate sources for these splits. The vocabularies contain the values of the
    training rows only, unless ``vocabulary`` is "all".

    >>> import polars, tempfile
    >>> log = polars.DataFrame({"click": [0, 1] * 50, "site": ["a", "b", "b", "c"] * 25})
    >>> from fm2 import Field
    >>> dataset = prepare(log, Schema([Field("site")], label="click"), tempfile.mkdtemp() + "/data")
    >>> dataset.train.ids.shape[1], len(dataset.vocabularies[0])
    (1, 4)
    """
    known = schema.vocabularies if isinstance(schema, Dataset | Encoder) else []
    schema = _resolve_schema(schema)
    _check_options(split, vocabulary, bad_rows, seed)
    check_threads("prepare", threads)
    has_source = (False, validation is not None, test is not None)
    shares = check_fractions(fractions, has_source, training_required=not known)
    sources = _open_sources(source, validation, test, schema)
    all_splits = vocabulary == "all"
    timestamps = [field for field in schema.fields if field.kind == "timestamp"] if split == "time" else []
    time = timestamps[0] if timestamps else None

    with atomic_directory(Path(out), "prepare", "dataset", MANIFEST, overwrite) as directory:
        skipped, scratch = BadRows(directory, bad_rows), ScratchRows(directory, len(schema.fields))
        with contextlib.closing(skipped), contextlib.closing(scratch):
            reader = LogReader(schema, time, skipped, threads)
            blocks = scratch.record(reader.read(sources, progress))
            if split == "random":
                assign = _respect_sources(lambda block: random_split(block.rows, shares, seed))
            else:
                collections.deque(blocks, maxlen=0)  # reads and records all blocks
                assign = _respect_sources(_split_in_order(scratch, shares, by_time=time is not None))
                blocks = _with_progress("counting", scratch, progress)
            counts = counting.count_rows(
                blocks, assign, schema, reader.collector, all_splits=all_splits, threads=threads
            )
            if scratch.rows == 0:
                raise Fm2Error(f"prepare: all {skipped.count} rows are bad; the first is {skipped.first}")
            if counts.rows[0] == 0 and not known:
                raise Fm2Error(f"prepare: none of the {scratch.rows} rows is for training; more rows are needed")
            boundaries = counting.learn_quantiles(schema, known, scratch, assign, int(counts.rows[0]))
            buckets = counting.count_buckets(boundaries, scratch, assign, all_splits=all_splits)
            code_counts = [buckets.get(index, count) for index, count in enumerate(counts.codes)]
            fields = counting.build_vocabularies(schema, code_counts, boundaries, reader.collector, known)
            blocks = _with_progress("writing", scratch, progress)
            ids_of = [field.ids for field in fields]
            split_rows = counts.rows.tolist()
            files, unknown = write_splits(directory, blocks, assign, split_rows, ids_of, boundaries, threads)
        schema.save(directory / SCHEMA)
        save_vocabularies(directory / VOCABULARIES, [field.vocabulary for field in fields])
        other_files = [directory / name for name in (SCHEMA, VOCABULARIES, *([BAD_ROWS] if skipped.count else []))]
        splits = zip(SPLITS, split_rows, counts.clicks.tolist(), strict=True)
        settings = {"split": split, "seed": seed, "vocabulary": vocabulary}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "splits": {name: {"rows": rows, "clicks": clicks} for name, rows, clicks in splits},
            "fields": [
                {
                    "name": name,
                    "features": len(field.vocabulary),
                    "dropped": field.dropped,
                    "unknown": dict(zip(SPLITS, missed.tolist(), strict=True)),
                }
                for name, field, missed in zip(schema.names, fields, unknown.T, strict=True)
            ],
            "bad_rows": {"count": skipped.count, **skipped.faults},
            "sources": [
                {"name": printable(str(opened)), "split": SPLITS[role] if role else split} for opened, role in sources
            ],
            "settings": settings | {"fractions": list(shares), "like": bool(known)},
            "files": {file.name: {"bytes": file.stat().st_size, "sha256": checksum(file)} for file in other_files}
            | files,
        }
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
    return Dataset.open(out)


def _resolve_schema(schema: Schema | Dataset | Encoder | str | Path) -> Schema:
    if isinstance(schema, Dataset | Encoder):
        return schema.schema
    if isinstance(schema, Schema):
        return schema
    if not isinstance(schema, str | Path):
        expected = "a Schema, the name of a preset or the path of a file"
        raise Fm2Error(f"prepare: schema must be {expected}, got {type(schema).__name__}")
    if isinstance(schema, str) and not Path(schema).exists():
        return Schema.preset(schema)
    return Schema.load(schema)


def _check_options(split: str, vocabulary: str, bad_rows: str, seed: int) -> None:
    for name, value, choices in (
        ("split", split, ("random", "time")),
        ("vocabulary", vocabulary, ("train", "all")),
        ("bad_rows", bad_rows, ("stop", "skip")),
    ):
        if value not in choices:
            raise Fm2Error(f"prepare: {name} must be {' or '.join(choices)}, got '{value}'")
    if not -(2**63) <= seed < 2**63:
        raise Fm2Error(f"prepare: the seed must fit into 64 bits, got {seed}")


def _open_sources(source: Any, validation: Any, test: Any, schema: Schema) -> list[tuple[Source, int | None]]:
    """Open all sources; those for validation and test come with the number of their split."""
    if isinstance(source, list | tuple) and not source:
        raise Fm2Error("prepare: there are no sources")
    roles = [(source, None), (validation, SPLITS.index("validation")), (test, SPLITS.index("test"))]
    return [(opened, role) for source, role in roles if source is not None for opened in open_sources(source, schema)]


def _respect_sources(assign: counting.Assign) -> counting.Assign:
    """Keep the rows of a source for validation or test in its split; ``assign`` the others."""
    return lambda block: assign(block) if block.split is None else np.full(len(block), block.split, np.uint8)


def _split_in_order(scratch: ScratchRows, shares: Sequence[float], by_time: bool) -> counting.Assign:
    def order(block: Block) -> NDArray[np.int64]:
        return block.times if by_time else block.rows

    assign = ordered_split(lambda: (order(block) for block in scratch.blocks(fields=()) if block.split is None), shares)
    return lambda block: assign(order(block))


def _with_progress(title: str, scratch: ScratchRows, shown: bool | None) -> Iterator[Block]:
    rows = 0
    with Progress(title, scratch.rows, shown) as progress:
        for block in scratch.blocks():
            yield block
            rows += len(block)
            progress.update(rows, rows)


def write_splits(
    directory: Path,
    blocks: Iterable[Block],
    assign: counting.Assign,
    rows: Sequence[int],
    ids_of: list[NDArray[np.int32]],
    boundaries: counting.Boundaries,
    threads: int,
) -> tuple[dict[str, dict[str, Any]], NDArray[np.int64]]:
    """Replace codes with ids and write the rows of each split; ``rows`` is the number of rows of each.

    Return the size and checksum of each file, and how many values of each split and field are unknown.
    """
    fields = len(ids_of)
    arrays = (("ids", (fields,), np.int32), ("labels", (), np.uint8), ("rows", (), np.int64))
    writers = [
        [_NpyWriter(directory / split / f"{name}.npy", (count, *shape), dtype) for name, shape, dtype in arrays]
        for split, count in zip(SPLITS, rows, strict=True)
    ]
    unknown = np.zeros((len(SPLITS), fields), np.int64)
    for block in blocks:
        for index, bounds in boundaries.items():
            block.codes[index] = counting.bucket_codes(block.codes[index], bounds)
        assignment = assign(block)
        order = np.argsort(assignment, kind="stable").astype(np.int32)
        ids = np.empty((len(order), fields), np.int32)
        _native.codes_to_ids(block.codes, order, ids_of, ids, threads)
        end = 0
        for number, count in enumerate(np.bincount(assignment, minlength=len(SPLITS))):
            part = slice(end, end + int(count))
            unknown[number] += (ids[part] == 0).sum(axis=0)
            values: list[NDArray[Any]] = [ids[part], block.labels[order[part]], block.rows[order[part]]]
            for writer, array in zip(writers[number], values, strict=True):
                writer.append(array)
            end = part.stop
    files = {writer.path.relative_to(directory).as_posix(): writer.close() for split in writers for writer in split}
    return files, unknown


class _NpyWriter:
    """Write an array of known shape to a .npy file, some rows at a time; compute the checksum at the same time."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._rows_left = shape[0]
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.flush()
        self._hash = hashlib.sha256(path.read_bytes())

    def append(self, rows: NDArray[Any]) -> None:
        data = np.ascontiguousarray(rows, dtype=self._dtype).data
        self._rows_left -= len(rows)
        self._file.write(data)
        self._hash.update(data)

    def close(self) -> dict[str, Any]:
        """Close the file; return its size and checksum."""
        if self._rows_left:
            raise ValueError(f"{self.path.name}: {self._rows_left} rows are missing")
        self._file.close()
        return {"bytes": self.path.stat().st_size, "sha256": self._hash.hexdigest()}
