"""Synthetic click logs of any size whose true click probabilities are known."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.data.cells import Cells
from fm2.data.synthetic.planted import expected_auc, plant
from fm2.errors import Fm2Error, require

Format = Literal["tsv", "tsv.gz", "parquet"]

MOST_FIELDS, MOST_FEATURES = 300, 100_000_000
CHUNK_ROWS, CHUNK_CELLS = 1 << 15, 1 << 21
ROW_GROUP_ROWS = 1 << 17
PROBABILITY_BINS = 1 << 16


@dataclass(frozen=True)
class GeneratedLog:
    """A generated log: its file, the file of its true probabilities, its share of clicks.

    ``auc`` and ``log_loss`` are what the true probabilities are expected to reach: the best possible, for any model.
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
    """Counts rows by their true probability, in bins so narrow that what follows from the counts is exact enough."""

    counts: NDArray[np.int64]
    clicks: int = 0

    def add(self, labels: NDArray[np.bool_], probabilities: NDArray[np.float32]) -> None:
        bins = np.minimum(probabilities * len(self.counts), len(self.counts) - 1).astype(np.int64)
        self.counts += np.bincount(bins, minlength=len(self.counts))
        self.clicks += int(labels.sum())

    def summary(self, path: Path, truth: Path) -> GeneratedLog:
        rows, middles = int(self.counts.sum()), (np.arange(len(self.counts)) + 0.5) / len(self.counts)
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

    The log looks like Criteo's: a label, integer columns I1, I2, … (a third of the ``fields``), categorical columns C1,
    C2, … of 8 hexadecimal digits; Zipf-distributed values, about ``features`` of them in all; missing cells; a quarter
    of the rows are clicks. The suffix of ``out`` says the format, unless ``format`` does: ``.tsv`` and ``.tsv.gz`` have
    no header, ``.parquet`` names the columns. The same arguments make the same bytes.

    ``<out>.truth.npy`` holds the true click probability of each row (float32): the one its label was drawn from. It
    depends on the row's cells alone, and on a number only by what the transform ``log_square`` keeps of it. So its AUC
    and log loss are the best that a model can expect. ``progress`` is called with the number of rows made so far.

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
    cells = Cells(model, salt=int(rng.integers(1 << 32)))
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
            yield cells.frame(labels, drawn, rng)
            if progress:
                progress(done + len(drawn))

    truth = path.with_name(f"{path.name}.truth.npy")
    with _appearing(path, truth) as (log_file, truth_file):
        _write(lambda *_: frames(truth_file), cells.schema, log_file, form)
    return tally.summary(path, truth)


def _check(path: Path, rows: int, fields: int, features: int, seed: int, format: str | None) -> Format:
    """Refuse arguments that cannot be met; give the format that is meant."""
    for name, value, least, most, why in (
        ("rows", rows, 1, None, ""),
        ("fields", fields, 2, MOST_FIELDS, ""),
        ("features", features, 2 * fields, MOST_FEATURES, ", two for each field"),
        ("seed", seed, 0, None, ""),
    ):
        if value < least:
            raise Fm2Error(f"generate: {name} is {value}; at least {least} {'is' if least < 2 else 'are'} needed{why}")
        if most and value > most:
            raise Fm2Error(f"generate: {name} is {value}; at most {most} are possible")
    if not path.parent.is_dir():
        raise Fm2Error(f"generate: the folder '{path.parent}' does not exist")
    if path.is_dir():
        raise Fm2Error(f"generate: '{path}' is a folder")
    formats: tuple[Format, ...] = get_args(Format)
    for known in formats:
        if format == known or (format is None and path.name.lower().endswith(f".{known}")):
            return known
    wrong = f"format is '{format}'" if format else f"'{path.name}' does not say the format"
    raise Fm2Error(f"generate: {wrong}; there are {', '.join(formats)}")


def _random(seed: int, stream: int) -> np.random.Generator:
    """Give each stream of a seed numbers of its own: 0 plants, the others draw the chunks, in any order."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


def _write(frames: Callable[..., Iterator[object]], schema: dict[str, Any], file: IO[bytes], form: Format) -> None:
    """Let polars write the frames as they come."""
    table = require("polars.io.plugins", "train", "generating a log").register_io_source(frames, schema=schema)
    if form == "parquet":
        table.sink_parquet(file, row_group_size=ROW_GROUP_ROWS)
    elif form == "tsv":
        table.sink_csv(file, include_header=False, separator="\t")
    else:
        # Without a name and a time in its header, the file is the same each time.
        with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
            table.sink_csv(packed, include_header=False, separator="\t")


@contextmanager
def _appearing(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Open files that get their names when all is done, and leave nothing behind when it fails."""
    parts = [path.with_name(f".{path.name}.{os.getpid()}.part") for path in paths]
    try:
        with ExitStack() as open_files:
            yield [open_files.enter_context(part.open("wb")) for part in parts]
        for part, path in zip(parts, paths, strict=True):
            part.replace(path)
    except OSError as failed:
        raise Fm2Error(f"generate: {paths[0]}: {failed.strerror or failed}") from failed
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
