"""From raw logs to a prepared data set.

Three passes: the log is read once and every value gets a provisional number (:mod:`fm2.data.reading`); the numbers of
the training rows are counted, which makes the vocabularies; the numbers become ids, split by split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2.cpu import check_threads
from fm2.data.dataset import FORMAT, MANIFEST, SCHEMA, VERSION, VOCABULARIES, Dataset
from fm2.data.encoder import Encoder
from fm2.data.faults import FILE, BadRows, Policy
from fm2.data.passes import Passes
from fm2.data.reading import LogReader
from fm2.data.scratch import Block, Scratch
from fm2.data.sources import open_sources
from fm2.data.splits import SPLITS, Assignment, check_fractions, ordered_split, random_split
from fm2.data.vocabulary import save_vocabularies
from fm2.errors import Fm2Error, printable
from fm2.files import atomic_directory, checksum
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

    ``source`` is a path, a glob, a table (polars, pandas, pyarrow), or a list of these; ``schema`` a :class:`Schema`,
    the name of a preset or the path of a TOML file; or a data set of older rows, or the encoder of a model, whose
    schema and boundaries between quantiles are taken, and all of whose values are kept, so that a model of those can go
    on with these rows. Rows are divided at random, or by time: the first timestamp field tells it, or the order of the
    rows where there is none. ``validation`` and ``test`` are sources of their own for these splits. The vocabularies
    count the training rows alone unless ``vocabulary`` is "all".

    >>> import polars, tempfile
    >>> table = polars.DataFrame({"click": [0, 1] * 50, "site": ["a", "b", "b", "c"] * 25})
    >>> from fm2 import Field
    >>> dataset = prepare(table, Schema([Field("site")], label="click"), tempfile.mkdtemp() + "/data")
    >>> dataset.train.ids.shape[1], len(dataset.vocabularies[0])
    (1, 4)
    """
    known = schema.vocabularies if isinstance(schema, Dataset | Encoder) else []
    schema = _find_schema(schema)
    for name, value, choices in (
        ("split", split, ("random", "time")),
        ("vocabulary", vocabulary, ("train", "all")),
        ("bad_rows", bad_rows, ("stop", "skip")),
    ):
        if value not in choices:
            raise Fm2Error(f"prepare: {name} is '{value}'; it is {' or '.join(choices)}")
    if not -(2**63) <= seed < 2**63:
        raise Fm2Error(f"prepare: the seed is {seed}; it has 64 bits at most")
    check_threads("prepare", threads)
    given = (False, validation is not None, test is not None)
    shares = check_fractions(fractions, given, may_lack_training=bool(known))
    roles = [(source, None), (validation, 1), (test, 2)]
    sources = [(found, role) for source, role in roles if source is not None for found in open_sources(source, schema)]
    if not any(role is None for _, role in sources):
        raise Fm2Error("prepare: there are no sources")
    time = next((field for field in schema.fields if field.kind == "timestamp"), None) if split == "time" else None
    with atomic_directory(Path(out), "prepare", "dataset", MANIFEST, overwrite) as directory:
        bad = BadRows(directory, bad_rows)
        with Scratch(directory, len(schema.fields), time is not None) as scratch:
            reader = LogReader(schema, time, bad, scratch, threads)
            try:
                reader.read(sources, progress)
            finally:
                bad.close()
            if scratch.rows == 0:
                raise Fm2Error(f"prepare: all {bad.count} rows are bad; the first: {_first_line(bad.path)}")
            assign = _assignment(scratch, split, time is not None, shares, seed)
            passes = Passes(schema, known, scratch, reader.collector, assign, vocabulary == "all", threads, progress)
            passes.learn()
            written = passes.write(directory)
        schema.save(directory / SCHEMA)
        save_vocabularies(directory / VOCABULARIES, passes.vocabularies)
        extra = [SCHEMA, VOCABULARIES, *([FILE] if bad.count else [])]
        files = {
            name: {"bytes": (directory / name).stat().st_size, "sha256": checksum(directory / name)} for name in extra
        }
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "splits": passes.splits,
            "fields": passes.fields,
            "bad_rows": {"count": bad.count, **bad.reasons},
            "sources": [
                {"name": printable(str(found)), "split": SPLITS[role] if role else split} for found, role in sources
            ],
            "settings": {
                "split": split,
                "fractions": list(shares),
                "seed": seed,
                "vocabulary": vocabulary,
                "like": bool(known),
            },
            "files": files | written,
        }
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
    return Dataset.open(out)


def _find_schema(schema: Schema | Dataset | Encoder | str | Path) -> Schema:
    if isinstance(schema, Dataset | Encoder):
        return schema.schema
    if isinstance(schema, Schema):
        return schema
    if not isinstance(schema, str | Path):
        raise Fm2Error(f"prepare: the schema is a Schema, a preset's name or a file, not {type(schema).__name__}")
    if isinstance(schema, str) and not Path(schema).exists():
        return Schema.preset(schema)
    return Schema.load(schema)


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readlines(1000)[1].decode(errors="backslashreplace").replace("\t", " ").strip()[:200]


def _assignment(
    scratch: Scratch, split: str, timed: bool, shares: Sequence[float], seed: int
) -> Callable[[Block], Assignment]:
    """Make the rule by which a row gets its split: that of its file, or by chance, or by time."""

    def when(block: Block) -> NDArray[np.int64]:
        return block.times if timed else block.rows

    def divided() -> Iterator[NDArray[np.int64]]:
        return (when(block) for block in scratch.blocks(numbers=False) if block.split is None)

    ordered = ordered_split(divided, shares) if split == "time" else None

    def assign(block: Block) -> Assignment:
        if block.split is not None:
            return np.full(len(block.labels), block.split, dtype=np.uint8)
        return ordered(when(block)) if ordered else random_split(block.rows, shares, seed)

    return assign
