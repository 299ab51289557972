"""Probabilities for raw rows in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fm2.data.sources import open_sources
from fm2.errors import Fm2Error
from fm2.progress import Progress
from fm2.storage import new_file
from fm2.training.run import Run


def predict_files(run: Run, sources: Sequence[str | Path], out: Path, shown: bool | None = None) -> int:
    """Write one probability for each row, in the order of the rows; give how many there are.

    A file whose name ends in .npy becomes a float32 array, any other has one number a line.
    """
    opened = open_sources(list(sources), run.encoder.schema, labelled=False)
    if any(Path(str(source)).exists() and out.exists() and out.samefile(str(source)) for source in sources):
        raise Fm2Error(f"predict: {out} is one of the files to score; choose another --out")
    rows = 0
    try:
        with new_file(out) as partial, partial.open("wb") as file, Progress("scoring", len(opened), shown) as progress:
            parts = []
            for done, source in enumerate(opened):
                for ids in run.encoder.encode_file(source):
                    found = run.probabilities(ids)
                    rows += len(found)
                    if out.suffix == ".npy":
                        parts.append(found)
                    else:
                        file.write(b"".join(b"%.7g\n" % value for value in found.tolist()))
                    progress.update(done, rows)
            if out.suffix == ".npy":
                np.save(file, np.concatenate([np.empty(0, np.float32), *parts]))
    except OSError as refused:
        raise Fm2Error(f"predict: {out}: {refused.strerror or refused}") from refused
    return rows
