"""Arrays written row by row into .npy files, to be memory-mapped later."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class NpyWriter:
    """Writes an array whose shape is known before its rows are; keeps its checksum on the way."""

    def __init__(self, path: Path, shape: tuple[int, ...], kind: DTypeLike) -> None:
        self.path, self._kind, self._left = path, np.dtype(kind), shape[0]
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("wb")
        header = {"descr": np.lib.format.dtype_to_descr(self._kind), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.flush()
        self._hash = hashlib.sha256(path.read_bytes())

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows."""
        data = np.ascontiguousarray(rows, dtype=self._kind).data
        self._left -= len(rows)
        self._file.write(data)
        self._hash.update(data)

    def close(self) -> dict[str, Any]:
        """Finish the file; give its size and checksum."""
        if self._left:
            raise ValueError(f"{self.path.name}: {self._left} rows are missing")
        self._file.close()
        return {"bytes": self.path.stat().st_size, "sha256": self._hash.hexdigest()}
