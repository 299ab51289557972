"""Ids that another thread changes all the time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


@contextlib.contextmanager
def changing_ids(rows: int, fields: int) -> Iterator[NDArray[np.int32]]:
    """Yield ids that are valid at one moment, and far too large at the next."""
    ids, stop = np.zeros((rows, fields), np.int32), threading.Event()

    def write() -> None:
        while not stop.is_set():
            ids.fill(2**31 - 1)
            ids.fill(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield ids
    finally:
        stop.set()
        writer.join()
