"""A number for every row of the log, as an array or an .npy file has them: row weights, true probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error


def read_row_values(
    operation: str, what: str, given: ArrayLike | str | Path, dataset: Dataset, dtype: DTypeLike
) -> NDArray[Any]:
    """Read one number a row, in the log's order; the splits of a data set tell by ``rows`` which are theirs.

    ``what`` the numbers are and the ``operation`` that needs them are for the errors.
    """
    try:
        values = np.load(given, mmap_mode="r", allow_pickle=False) if isinstance(given, str | Path) else given
        array: NDArray[Any] = np.asarray(values, dtype=dtype)
    except OSError as missing:
        raise Fm2Error(f"{operation}: the {what}: {missing.filename}: {missing.strerror}") from missing
    except (ValueError, TypeError, EOFError) as wrong:
        found = f"{given} is no .npy file" if isinstance(given, str | Path) else "they are no array"
        raise Fm2Error(f"{operation}: the {what}: {found} of numbers") from wrong
    splits = (dataset.train, dataset.validation, dataset.test)
    least = max((int(split.rows.max()) + 1 for split in splits if len(split)), default=0)
    most = sum(len(split) for split in splits) + dataset.manifest["bad_rows"]["count"]
    if array.ndim != 1:
        raise Fm2Error(f"{operation}: the {what} have the shape {list(array.shape)}; one number a row is needed")
    if not least <= len(array) <= most:
        raise Fm2Error(f"{operation}: there are {len(array):,} {what}, and the log has {most:,} rows")
    return array
