"""Turn raw logs into a prepared dataset.

The log is read once. Every value gets a code, the number of its first appearance in its field, and the codes go to a
scratch file (:mod:`fm2.data.log_reader`). Counting the codes of the training rows yields the vocabularies
(:mod:`fm2.data.counting`). Crosses and trees follow from the ids of other fields, so they take further passes
(:mod:`fm2.data.crosses`, :mod:`fm2.data.tree_fields`). Then the codes are replaced with ids and written, split by
split. A random split depends on the row number alone, so the codes are counted while the log is read; a split by time
is known only after that, and takes another pass over the scratch file. An engine runs these passes, in this process
(:mod:`fm2.data.engine`) or for parts of the log in tasks (:mod:`fm2.data.parts_engine`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fm2.cpu import check_threads
from fm2.data import counting
from fm2.data.bad_rows import BAD_ROWS, Policy
from fm2.data.crosses import build_crosses
from fm2.data.dataset import SCHEMA, VOCABULARIES, Dataset
from fm2.data.encoder import Encoder
from fm2.data.engine import Reading, Splitting
from fm2.data.engines import Engines, check_engine, open_engine
from fm2.data.list_warnings import warn_about_lists
from fm2.data.log_reader import Block, StoredRows
from fm2.data.manifest import FORMAT, MANIFEST, PARTS, PARTS_VERSION, VERSION
from fm2.data.numbers import NumberCodes
from fm2.data.sampling import TRAIN, NegativeSampling
from fm2.data.sources import Source, open_sources
from fm2.data.splits import SPLITS, Assignment, check_fractions, ordered_split, random_split
from fm2.data.text_files import TextFile
from fm2.data.tree_boosting import require_lightgbm
from fm2.data.tree_fields import build_trees
from fm2.data.vocabulary import save_vocabularies
from fm2.errors import Fm2Error, printable
from fm2.files import atomic_directory, checksum
from fm2.remote.paths import writes
from fm2.remote.urls import as_path, is_remote
from fm2.schema import Schema


@writes("out")
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
    negative_rate: float = 1.0,
    bad_rows: Policy = "stop",
    overwrite: bool = False,
    threads: int = 0,
    engine: Engines = "local",
    address: str | None = None,
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

    ``negative_rate`` keeps only this share of the training rows without a click, chosen by a hash of the seed and the
    row number. The other splits stay complete. A model that is trained on the dataset corrects its bias, so that it
    predicts the click rate of the complete log.

    ``engine`` "ray" reads, counts and encodes several files at the same time, in tasks of the Ray cluster at
    ``address``, or of a new one on this machine. The result has the same rows and vocabularies, in several parts. Files
    and ``out`` must be accessible to all machines of the cluster under the same path.

    >>> import polars, tempfile
    >>> log = polars.DataFrame({"click": [0, 1] * 50, "site": ["a", "b", "b", "c"] * 25})
    >>> from fm2 import Field
    >>> dataset = prepare(log, Schema([Field("site")], label="click"), tempfile.mkdtemp() + "/data")
    >>> dataset.train.ids.shape[1], len(dataset.vocabularies[0])
    (1, 4)
    """
    known = schema.vocabularies if isinstance(schema, Dataset | Encoder) else []
    schema = resolve_schema(schema)
    _check_options(split, vocabulary, bad_rows, seed)
    check_threads("prepare", threads)
    check_engine(engine, address)
    if not known and any(field.trees for field in schema.fields):
        require_lightgbm()  # before the log is read
    has_source = (False, validation is not None, test is not None)
    shares = check_fractions(fractions, has_source, training_required=not known)
    sources = _open_sources(source, validation, test, schema)
    timestamps = [field for field in schema.fields if field.kind == "timestamp"] if split == "time" else []
    time = timestamps[0] if timestamps else None
    sampling = NegativeSampling(negative_rate, seed)

    reading = Reading(schema, time, known, bad_rows, vocabulary == "all", threads, progress)
    with (
        atomic_directory(Path(out), "prepare", "dataset", MANIFEST, overwrite) as directory,
        open_engine(engine, address, reading, sources, directory) as passes,
    ):
        skipped = passes.skipped
        by_row = Splitting(functools.partial(_split_by_row, shares, seed), sampling) if split == "random" else None
        counts = passes.read(by_row)
        assign = by_row or Splitting(_split_in_order(passes, shares, by_time=time is not None), sampling)
        counts = counts or passes.count(assign)
        skipped.check_share(passes.rows)
        training_rows = counts.split_rows[TRAIN]
        if training_rows == 0 and not known:
            raise Fm2Error(f"prepare: none of the {passes.rows} rows is for training; more rows are needed")
        if not counts.totals.get("weight", np.ones(1)).any():
            raise Fm2Error(f"prepare: all weights are zero (column '{schema.weight}')")
        counted = counting.with_min_counts(schema, counts.training, bool(known))
        sample = functools.partial(passes.sample_numbers, assign)
        number_codes = NumberCodes(
            counted, counting.learn_numbers(counted, known, sample, counts.training, counts.click_rate)
        )
        of_numbers = passes.count_numbers(assign, number_codes)
        code_counts = [of_numbers.get(index, count) for index, count in enumerate(counts.codes)]
        fields = counting.build_vocabularies(counted, code_counts, number_codes, passes.values, known)
        fields = passes.set_ids(fields)
        fields, derived = build_crosses(counted, fields, number_codes, passes, assign, known, **reading.counted)
        options: dict[str, Any] = {"seed": seed, "negative_rate": negative_rate, "progress": progress}
        options |= reading.counted
        fields = build_trees(schema, fields, number_codes, derived, passes, assign, known, training_rows, **options)
        written = passes.write(assign, fields, number_codes, derived)
        passes.close()
        schema.save(directory / SCHEMA)
        save_vocabularies(directory / VOCABULARIES, [field.vocabulary for field in fields])
        other_files = [directory / name for name in (SCHEMA, VOCABULARIES, *([BAD_ROWS] if skipped.count else []))]
        settings: dict[str, Any] = {"split": split, "seed": seed, "vocabulary": vocabulary}
        if negative_rate != 1:
            settings |= {"negative_rate": negative_rate, "dropped_rows": counts.dropped}
        manifest = {
            "format": FORMAT,
            "version": VERSION if passes.parts == 1 else PARTS_VERSION,
            "splits": {name: counts.of_split(number) for number, name in enumerate(SPLITS)},
            "fields": [
                {"name": name, "features": len(field.vocabulary), "dropped": field.dropped, **written.of_field(index)}
                for index, (name, field) in enumerate(zip(schema.names, fields, strict=True))
            ],
            "bad_rows": {"count": skipped.count, **skipped.faults},
            "sources": [
                {"name": printable(str(opened)), "split": SPLITS[role] if role else split} for opened, role in sources
            ],
            "settings": settings | {"fractions": list(shares), "like": bool(known)},
            "files": {file.name: {"bytes": file.stat().st_size, "sha256": checksum(file)} for file in other_files}
            | written.files,
        }
        if passes.parts > 1:
            manifest[PARTS] = passes.parts
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
    dataset = Dataset.open(out)
    libffm = any(isinstance(opened, TextFile) and opened.is_libffm for opened, _ in sources)
    warn_about_lists(dataset, weights_required=not libffm)  # all values of libffm have weights
    return dataset


def resolve_schema(schema: Schema | Dataset | Encoder | str | Path) -> Schema:
    """Return a schema, that of a dataset or encoder, a preset, or the schema in a file."""
    if isinstance(schema, Dataset | Encoder):
        return schema.schema
    if isinstance(schema, Schema):
        return schema
    if not isinstance(schema, str | Path):
        expected = "a Schema, the name of a preset or the path of a file"
        raise Fm2Error(f"prepare: schema must be {expected}, got {type(schema).__name__}")
    if isinstance(schema, str) and not is_remote(schema) and not as_path(schema).exists():
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


def _split_by_row(shares: Sequence[float], seed: int, block: Block) -> Assignment:
    return random_split(block.rows, shares, seed)


def _split_in_order(rows: StoredRows, shares: Sequence[float], by_time: bool) -> Callable[[Block], Assignment]:
    blocks = functools.partial(rows.blocks, fields=())
    order = functools.partial(_order, by_time)
    assign = ordered_split(lambda: (order(block) for block in blocks() if block.split is None), shares)
    return functools.partial(_split_ordered, assign, order)


def _order(by_time: bool, block: Block) -> NDArray[np.int64]:
    return block.times if by_time else block.rows


def _split_ordered(
    assign: Callable[[NDArray[np.int64]], Assignment], order: Callable[[Block], NDArray[np.int64]], block: Block
) -> Assignment:
    return assign(order(block))
