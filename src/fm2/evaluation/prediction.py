"""Probabilities for raw rows in files."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from fm2.data.encoder import Encoder
from fm2.data.sources import open_sources
from fm2.errors import Fm2Error
from fm2.files import atomic_file, check_replaceable
from fm2.progress import Progress

LARGE_SHARE = 0.5
PROBABILITIES = r"\x93NUMPY|[01](\.\d+)?(e-\d+)?\n|\d\.?\d*e-\d+\n"  # how a file of them begins


@dataclass
class Scored:
    """How many rows were scored, and in how many of them each field's value was unknown to the model."""

    rows: int
    unknown: dict[str, int]

    def mostly_unknown(self) -> dict[str, float]:
        """Give the share of unknown values, of the fields where it is large: a column of another form, perhaps."""
        return large_shares(self.unknown, self.rows)


class Predictor(Protocol):
    """What gives probabilities: a run, or a compiled model."""

    path: Path
    threads: int

    @property
    def encoder(self) -> Encoder:
        """What turns raw rows into ids."""

    def probabilities(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Give the click probability of encoded rows."""


def predict_files(run: Predictor, sources: Sequence[str | Path], out: Path | None, shown: bool | None = None) -> Scored:
    """Write one probability for each row, in the order of the rows, to a file or, if it is None, to standard output.

    A file whose name ends in .npy becomes a float32 array, any other has one number a line. Such a file that is there
    already is replaced.
    """
    opened = open_sources(list(sources), run.encoder.schema, labeled=False)
    if out is not None:
        if any(Path(str(source)).exists() and out.exists() and out.samefile(str(source)) for source in sources):
            raise Fm2Error(f"predict: {out} is one of the files to score; choose another --out")
        check_replaceable(out, "predict", "file of probabilities", PROBABILITIES)
    array = out is not None and out.suffix == ".npy"
    rows, unknown = 0, np.zeros(len(run.encoder.schema.fields), np.int64)
    try:
        with _opened(out) as file, Progress("scoring", len(opened), shown) as progress:
            parts = []
            for done, source in enumerate(opened):
                for ids in run.encoder.encode_file(source, run.threads):
                    unknown += np.count_nonzero(ids == 0, axis=0)
                    found = run.probabilities(ids)
                    rows += len(found)
                    if array:
                        parts.append(found)
                    else:
                        file.write(b"".join(b"%.7g\n" % value for value in found.tolist()))
                    progress.update(done, rows)
            if array:
                np.save(file, np.concatenate([np.empty(0, np.float32), *parts]))
    except BrokenPipeError:
        raise  # whoever read standard output has gone
    except OSError as refused:
        raise Fm2Error(f"predict: {out or 'standard output'}: {refused.strerror or refused}") from refused
    return Scored(rows, dict(zip(run.encoder.schema.names, unknown.tolist(), strict=True)))


@contextlib.contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    """Open a file, or standard output where it stands: what it leads to may have more in it already."""
    if out is None:
        yield sys.stdout.buffer
        return
    with atomic_file(out) as partial, partial.open("wb") as file:
        yield file


def large_shares(counts: dict[str, int], rows: int) -> dict[str, float]:
    """Give those counts that are more than half of the rows, as shares.

    >>> large_shares({"a": 3, "b": 1}, rows=4)
    {'a': 0.75}
    """
    return {name: count / rows for name, count in counts.items() if count > LARGE_SHARE * rows}
