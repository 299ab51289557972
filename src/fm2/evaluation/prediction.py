"""Click probabilities for raw rows in files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.calibration import Calibration
from fm2.data.encoder import Encoder
from fm2.data.rows import EncodedRows
from fm2.data.sources import ROW_BYTES, Source, open_sources
from fm2.data.text_files import TextFile
from fm2.errors import Fm2Error, name_locations
from fm2.evaluation.prediction_files import Batch, check_keep, check_replaceable, write_batches
from fm2.progress import Progress
from fm2.remote.paths import writes


@dataclass
class Predictions:
    """The number of rows that were scored, and for each field the number of values that the model does not know.

    ``values`` is the number of all values of each field, which differs from ``rows`` for a multi-valued field.
    """

    rows: int
    unknown: dict[str, int]
    values: dict[str, int]

    def mostly_unknown(self) -> dict[str, float]:
        """Return the fraction of unknown values for the fields where it is large, perhaps due to another format."""
        return large_shares(self.unknown, self.values)


class Predictor(Protocol):
    """A model that predicts probabilities: a run, or a compiled model."""

    path: Path
    threads: int
    calibration: Calibration | None

    @property
    def encoder(self) -> Encoder:
        """The encoder of raw rows."""

    def logits(self, rows: EncodedRows) -> NDArray[np.float32]:
        """Return the model's logits of encoded rows."""

    def probabilities(self, rows: EncodedRows) -> NDArray[np.float32]:
        """Return the calibrated click probabilities of encoded rows."""


@writes("out")
def predict_files(
    model: Predictor, sources: Any, out: str | Path | None, *, keep: Sequence[str] = (), progress: bool | None = None
) -> Predictions:
    """Write the click probability of every row of the sources to a file, in the order of the rows.

    ``sources`` is a path, a glob pattern, a DataFrame, or a list of these. The extension of ``out`` selects the format:
    ``.csv`` or ``.csv.gz`` with a header, ``.parquet``, ``.npy`` (float32), and text with one probability per line for
    ``.txt`` or no extension. Extensions of other tables and archives, such as .xlsx, .json or .gz, are errors. None
    writes CSV to standard output. CSV and Parquet have a column ``probability`` after the columns in ``keep``, which
    are copied from the input. Memory use does not depend on the number of rows, except for ``.npy``.

    An existing file of probabilities is replaced, on success only; any other file is an error. ``progress`` shows a
    progress bar; by default, if standard error is a terminal.

    >>> import fm2, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = fm2.generate(f"{folder}/log.tsv", 2000, features=500)
    ...     data = fm2.prepare(log.path, fm2.Schema.preset("criteo"), f"{folder}/data")
    ...     run = fm2.train("lr", data, f"{folder}/run", epochs=1)
    ...     predictions = fm2.predict_files(run, log.path, f"{folder}/predictions.csv", keep=["C1"])
    ...     header = Path(folder, "predictions.csv").read_text().splitlines()[0]
    >>> predictions.rows, header
    (2000, 'C1,probability')
    """
    path = None if out is None else Path(out)
    opened = open_sources(sources, model.encoder.schema, labeled=False)
    if path is not None and any(_is_same_file(path, str(source)) for source in opened):
        raise Fm2Error(f"predict: {path} is one of the input files; choose another output file")
    check_keep(path, keep)
    if path is not None:
        check_replaceable(path)
    names = model.encoder.schema.names
    predictions = Predictions(0, dict.fromkeys(names, 0), dict.fromkeys(names, 0))
    with Progress("scoring", sum(source.size for source in opened), progress) as bar:
        write_batches(path, opened, keep, _score(model, opened, keep, predictions, bar))
    return predictions


def _is_same_file(path: Path, source: str) -> bool:
    """Return whether an output is also the source of this name, a path or a URL."""
    exist = path.exists() and Path(source).exists()
    return path.samefile(source) if exist else name_locations(str(path)) == source


def _score(
    model: Predictor, sources: Sequence[Source], keep: Sequence[str], predictions: Predictions, progress: Progress
) -> Iterator[Batch]:
    """Yield the kept columns and the probabilities of all rows, batch by batch."""
    size = 0
    for source in sources:
        for kept, rows, done in _encode(model, source, keep):
            probabilities = model.probabilities(rows)
            predictions.rows += len(rows)
            for name, unknown, values in zip(predictions.unknown, *count_values(rows), strict=True):
                predictions.unknown[name] += unknown
                predictions.values[name] += values
            yield kept, probabilities
            progress.update(size + done, predictions.rows)
        size += source.size


def _encode(model: Predictor, source: Source, keep: Sequence[str]) -> Iterator[tuple[Any, EncodedRows, int]]:
    """Yield the kept columns and the encoded rows of a source, and how much of its size has been read."""
    encoder = model.encoder
    if isinstance(source, TextFile):
        positions = dict(zip(keep, source.positions(keep), strict=True))
        for encoded, done in encoder.encode_text(source, model.threads):
            kept = {name: encoded.cells(position) for name, position in positions.items()}
            yield kept, encoded.rows, done
        return
    rows = 0
    for frame in source.frames(list(dict.fromkeys([*encoder.schema.feature_columns, *keep]))):
        rows += frame.height
        yield frame.select(keep), encoder.encode_rows(frame, model.threads), rows * ROW_BYTES


def count_values(rows: EncodedRows) -> tuple[list[int], list[int]]:
    """Return the number of unknown values and of all values of each field.

    >>> from fm2.data.rows import Lists
    >>> count_values(EncodedRows(np.array([[0, 1], [5, 1]], np.int32), {1: Lists.of([[0], [0, 3, 4]])}))
    ([1, 2], [2, 6])
    """
    unknown = np.count_nonzero(rows.ids == 0, axis=0)
    values = np.full(len(unknown), len(rows))
    for field, lists in rows.lists.items():
        used = lists.take(rows.ids[:, field])
        unknown[field] = np.count_nonzero(used.ids == 0)
        values[field] = len(used.ids)
    return unknown.tolist(), values.tolist()


def large_shares(counts: dict[str, int], totals: dict[str, int]) -> dict[str, float]:
    """Return the counts that exceed half of their total, as fractions."""
    return {name: count / totals[name] for name, count in counts.items() if count > totals[name] / 2}
