"""Generate click logs of any size whose true click probabilities are known."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.data.synthetic.columns import RawValues
from fm2.data.synthetic.lists import POOLING, CellTexts
from fm2.data.synthetic.planted import CLICK_RATE, Planted, expected_auc, plant
from fm2.errors import Fm2Error, require
from fm2.files import atomic_file
from fm2.remote.paths import writes
from fm2.schema import Field, Schema

Format = Literal["tsv", "tsv.gz", "parquet"]

MAX_FIELDS = 300
MAX_VALUES = 1000
MAX_FEATURES = 100_000_000
CHUNK_ROWS = 1 << 15
CHUNK_CELLS = 1 << 21
ROW_GROUP_ROWS = 1 << 17
PROBABILITY_BINS = 1 << 16


@dataclass(frozen=True)
class GeneratedLog:
    """A generated log: its file, the file of its true probabilities, and its click rate.

    ``auc`` and ``log_loss`` are the expected metrics of the true probabilities, which no model can surpass. ``schema``
    is the schema file of a log with list columns.
    """

    path: Path
    truth: Path
    rows: int
    click_rate: float
    auc: float
    log_loss: float
    schema: Path | None = None

    def __fspath__(self) -> str:
        return str(self.path)


@dataclass
class _Tally:
    """Count rows in narrow bins of their true probability, from which AUC and log loss are computed."""

    counts: NDArray[np.int64]
    clicks: int = 0

    def add(self, labels: NDArray[np.bool_], probabilities: NDArray[np.float32]) -> None:
        bins = np.minimum(probabilities * len(self.counts), len(self.counts) - 1).astype(np.int64)
        self.counts += np.bincount(bins, minlength=len(self.counts))
        self.clicks += int(labels.sum())

    def summary(self, path: Path, truth: Path, schema: Path | None) -> GeneratedLog:
        rows = int(self.counts.sum())
        middles = (np.arange(len(self.counts)) + 0.5) / len(self.counts)
        entropies = -middles * np.log(middles) - (1 - middles) * np.log(1 - middles)
        best_log_loss = float((entropies * self.counts).sum()) / rows
        best_auc = expected_auc(middles, self.counts)
        return GeneratedLog(path, truth, rows, self.clicks / rows, best_auc, best_log_loss, schema)


@writes("out")
def generate(
    out: str | os.PathLike[str],
    rows: int,
    *,
    fields: int = 39,
    features: int = 1_000_000,
    multivalued: int = 0,
    values: int = 10,
    weighted: bool = False,
    seed: int = 0,
    click_rate: float = CLICK_RATE,
    format: Format | None = None,
    progress: Callable[[int], None] | None = None,
) -> GeneratedLog:
    """Write a click log whose labels are drawn from a planted field-matrixed model, and its true probabilities.

    The log looks like Criteo's: a label, integer columns I1, I2, … (a third of the ``fields``), and categorical columns
    C1, C2, … of 8 hexadecimal digits. The values have a Zipf distribution, about ``features`` values in total. Some
    cells are missing. ``click_rate`` is the expected share of clicks. The format follows from the extension of ``out``,
    unless ``format`` is set: ``.tsv`` and ``.tsv.gz`` files have no header, ``.parquet`` files name the columns. The
    same arguments produce the same bytes.

    ``<out>.truth.npy`` contains the true click probability of each row (float32), from which its label was drawn. It
    depends on the cells of the row alone, and on a number only through the transform ``log_square``. No model has a
    better expected AUC or log loss. ``progress`` is called with the number of rows written so far.

    ``multivalued`` adds list columns L1, L2, … whose cells have ``values`` values on average, separated by ``|``, or
    with ``weighted`` values such as ``1f3a90bc:0.5``. A tenth of these cells are missing. A list contributes the sum of
    its values' weights and embeddings, pooled by ``sqrt``. ``<out>.schema.toml`` is the schema of such a log.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = generate(f"{folder}/log.tsv", 10_000, features=5_000)
    ...     truth = np.load(log.truth)
    >>> len(truth), round(float(truth.mean()), 2), round(log.auc, 2)
    (10000, 0.25, 0.81)
    """
    path = Path(out)
    form = _check(path, rows, fields, features, seed, format, multivalued, values)
    if not 0.001 <= click_rate <= 0.999:
        raise Fm2Error(f"generate: click_rate must be between 0.001 and 0.999, got {click_rate}")
    rng = _random(seed, 0)
    model = plant(fields, features, rng, click_rate, multivalued, values, weighted)
    salt = int(rng.integers(1 << 32))
    raw_values = RawValues(model.columns, model.starts[:fields], salt)
    cell_texts = CellTexts(model.lists, model.starts[fields:], salt)
    tally = _Tally(np.zeros(PROBABILITY_BINS, np.int64))

    def frames(truth_file: IO[bytes]) -> Iterator[object]:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(truth_file, header)
        chunk = min(CHUNK_ROWS, CHUNK_CELLS // (fields + multivalued * values))
        for number, done in enumerate(range(0, rows, chunk), start=1):
            rng = _random(seed, number)
            drawn = model.draw(min(chunk, rows - done), rng)
            lists = model.draw_lists(len(drawn), rng)
            probabilities = model.probabilities(drawn, lists).astype("<f4")
            labels = rng.random(len(drawn)) < probabilities
            truth_file.write(probabilities.tobytes())
            tally.add(labels, probabilities)
            yield raw_values.frame(labels, drawn, rng).with_columns(cell_texts.series(lists))
            if progress:
                progress(done + len(drawn))

    truth = path.with_name(f"{path.name}.truth.npy")
    schema = path.with_name(f"{path.name}.schema.toml") if multivalued else None
    try:
        with (
            atomic_file(path) as log_part,
            atomic_file(truth) as truth_part,
            log_part.open("wb") as log_file,
            truth_part.open("wb") as truth_file,
        ):
            _write(lambda *_: frames(truth_file), raw_values.schema | cell_texts.schema, log_file, form)
            if schema is not None:
                with atomic_file(schema) as schema_part:
                    _schema(model).save(schema_part)
    except OSError as error:
        raise Fm2Error(f"generate: {path}: {error.strerror or error}") from error
    return tally.summary(path, truth, schema)


def _schema(model: Planted) -> Schema:
    fields = [Field(column.name, "numeric" if column.numeric else "categorical") for column in model.columns]
    fields += [
        Field(each.column.name, multivalued=True, pooling=POOLING, weighted=each.weighted) for each in model.lists
    ]
    return Schema(fields, label="label", columns=["label", *(field.name for field in fields)])


def _check(
    path: Path, rows: int, fields: int, features: int, seed: int, format: str | None, multivalued: int, values: int
) -> Format:
    """Check the arguments; return the format."""
    for name, value, least, most, reason in (
        ("rows", rows, 1, None, ""),
        ("fields", fields, 2, MAX_FIELDS, ""),
        ("multivalued", multivalued, 0, MAX_FIELDS, ""),
        ("values", values, 1, MAX_VALUES, ""),
        ("features", features, 2 * (fields + multivalued), MAX_FEATURES, " (two per field)"),
        ("seed", seed, 0, None, ""),
    ):
        if value < least:
            raise Fm2Error(f"generate: {name} must be at least {least}{reason}, got {value}")
        if most and value > most:
            raise Fm2Error(f"generate: {name} must be at most {most}, got {value}")
    if not path.parent.is_dir():
        raise Fm2Error(f"generate: the directory '{path.parent}' does not exist")
    if path.is_dir():
        raise Fm2Error(f"generate: '{path}' is a directory")
    formats: tuple[Format, ...] = get_args(Format)
    for known in formats:
        if format == known or (format is None and path.name.lower().endswith(f".{known}")):
            return known
    problem = f"unknown format '{format}'" if format else f"unknown extension of '{path.name}'"
    raise Fm2Error(f"generate: {problem}; choose one of {', '.join(formats)}")


def _random(seed: int, stream: int) -> np.random.Generator:
    """Return an independent generator for each stream of a seed: 0 plants the model, the others draw the chunks."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


def _write(frames: Callable[..., Iterator[object]], schema: dict[str, Any], file: IO[bytes], form: Format) -> None:
    """Write frames with polars as they are generated."""
    log = require("polars.io.plugins", "train", "generating a log").register_io_source(frames, schema=schema)
    if form == "parquet":
        try:
            log.sink_parquet(file, row_group_size=ROW_GROUP_ROWS)
        except require("polars.exceptions", "train", "generating a log").PolarsError as error:
            raise OSError(f"{error}, perhaps because the disk is full") from error
    elif form == "tsv":
        log.sink_csv(file, include_header=False, separator="\t")
    else:
        # Without a name and a time in its header, the file is reproducible.
        with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as compressed:
            log.sink_csv(compressed, include_header=False, separator="\t")
