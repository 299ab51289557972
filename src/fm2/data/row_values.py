"""One number per row of the log, from an array or an .npy file: row weights, true probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error


def read_row_values(
    operation: str, kind: str, values: ArrayLike | str | Path, dataset: Dataset, dtype: DTypeLike
) -> NDArray[Any]:
    """Return one number per row of the log that a dataset was prepared from, in the order of the log.

    ``Split.rows`` has the indices of a split's rows. Errors name the ``operation`` and the ``kind`` of values.
    """
    path = values if isinstance(values, str | Path) else None
    try:
        loaded = values if path is None else np.load(path, mmap_mode="r", allow_pickle=False)
        array: NDArray[Any] = np.asarray(loaded, dtype=dtype)
    except OSError as error:
        raise Fm2Error(f"{operation}: {kind}: {error.filename}: {error.strerror}") from error
    except (ValueError, TypeError, EOFError) as error:
        problem = "expected an array of numbers" if path is None else f"{path} is not an .npy file of numbers"
        raise Fm2Error(f"{operation}: {kind}: {problem}") from error
    if array.ndim != 1:
        raise Fm2Error(f"{operation}: {kind}: expected one number per row, got the shape {list(array.shape)}")
    splits = (dataset.train, dataset.validation, dataset.test)
    least = max((int(split.rows.max()) + 1 for split in splits if len(split)), default=0)
    most = sum(len(split) for split in splits) + dataset.manifest["bad_rows"]["count"]
    if not least <= len(array) <= most:
        raise Fm2Error(f"{operation}: {kind}: expected {most:,} numbers, one per row of the log, got {len(array):,}")
    return array
