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
from fm2.data.synthetic.planted import expected_auc, plant
from fm2.errors import Fm2Error, require
from fm2.files import atomic_file

Format = Literal["tsv", "tsv.gz", "parquet"]

MAX_FIELDS = 300
MAX_FEATURES = 100_000_000
CHUNK_ROWS = 1 << 15
CHUNK_CELLS = 1 << 21
ROW_GROUP_ROWS = 1 << 17
PROBABILITY_BINS = 1 << 16


@dataclass(frozen=True)
class GeneratedLog:
    """A generated log: its file, the file of its true probabilities, and its click rate.

    ``auc`` and ``log_loss`` are the expected metrics of the true probabilities, which no model can surpass.
    """

    path: Path
    truth: Path
    rows: int
    click_rate: float
    auc: float
    log_loss: float

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

    def summary(self, path: Path, truth: Path) -> GeneratedLog:
        rows = int(self.counts.sum())
        middles = (np.arange(len(self.counts)) + 0.5) / len(self.counts)
        entropies = -middles * np.log(middles) - (1 - middles) * np.log(1 - middles)
        best_log_loss = float((entropies * self.counts).sum()) / rows
        return GeneratedLog(path, truth, rows, self.clicks / rows, expected_auc(middles, self.counts), best_log_loss)


def generate(
    out: str | os.PathLike[str],
    rows: int,
    *,
    fields: int = 39,
    features: int = 1_000_000,
    seed: int = 0,
    format: Format | None = None,
    progress: Callable[[int], None] | None = None,
) -> GeneratedLog:
    """Write a click log whose labels are drawn from a planted field-matrixed model, and its true probabilities.

    The log looks like Criteo's: a label, integer columns I1, I2, … (a third of the ``fields``), and categorical columns
    C1, C2, … of 8 hexadecimal digits. The values have a Zipf distribution, about ``features`` values in total. Some
    cells are missing. A quarter of the rows are clicks. The format follows from the extension of ``out``, unless
    ``format`` is set: ``.tsv`` and ``.tsv.gz`` files have no header, ``.parquet`` files name the columns. The same
    arguments produce the same bytes.

    ``<out>.truth.npy`` contains the true click probability of each row (float32), from which its label was drawn. It
    depends on the cells of the row alone, and on a number only through the transform ``log_square``. No model has a
    better expected AUC or log loss. ``progress`` is called with the number of rows written so far.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = generate(f"{folder}/log.tsv", 10_000, features=5_000)
    ...     truth = np.load(log.truth)
    >>> len(truth), round(float(truth.mean()), 2), round(log.auc, 2)
    (10000, 0.25, 0.81)
    """
    path = Path(out)
    form = _check(path, rows, fields, features, seed, format)
    rng = _random(seed, 0)
    model = plant(fields, features, rng)
    raw_values = RawValues(model.columns, model.starts, salt=int(rng.integers(1 << 32)))
    tally = _Tally(np.zeros(PROBABILITY_BINS, np.int64))

    def frames(truth_file: IO[bytes]) -> Iterator[object]:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(truth_file, header)
        chunk = min(CHUNK_ROWS, CHUNK_CELLS // fields)
        for number, done in enumerate(range(0, rows, chunk), start=1):
            rng = _random(seed, number)
            drawn = model.draw(min(chunk, rows - done), rng)
            probabilities = model.probabilities(drawn).astype("<f4")
            labels = rng.random(len(drawn)) < probabilities
            truth_file.write(probabilities.tobytes())
            tally.add(labels, probabilities)
            yield raw_values.frame(labels, drawn, rng)
            if progress:
                progress(done + len(drawn))

    truth = path.with_name(f"{path.name}.truth.npy")
    try:
        with (
            atomic_file(path) as log_part,
            atomic_file(truth) as truth_part,
            log_part.open("wb") as log_file,
            truth_part.open("wb") as truth_file,
        ):
            _write(lambda *_: frames(truth_file), raw_values.schema, log_file, form)
    except OSError as error:
        raise Fm2Error(f"generate: {path}: {error.strerror or error}") from error
    return tally.summary(path, truth)


def _check(path: Path, rows: int, fields: int, features: int, seed: int, format: str | None) -> Format:
    """Check the arguments; return the format."""
    for name, value, least, most, reason in (
        ("rows", rows, 1, None, ""),
        ("fields", fields, 2, MAX_FIELDS, ""),
        ("features", features, 2 * fields, MAX_FEATURES, " (two per field)"),
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
        log.sink_parquet(file, row_group_size=ROW_GROUP_ROWS)
    elif form == "tsv":
        log.sink_csv(file, include_header=False, separator="\t")
    else:
        # Without a name and a time in its header, the file is reproducible.
        with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as compressed:
            log.sink_csv(compressed, include_header=False, separator="\t")
