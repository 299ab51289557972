"""Arrays and plain values in one safetensors file, which appears whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.errors import Fm2Error, needs
from fm2.storage import new_file

Arrays = dict[str, NDArray[Any]]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> None:
    """Write arrays, and beside them, in the file's header, values that JSON can hold."""
    numpy_format = needs("safetensors.numpy", "train", "writing a model")
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with new_file(path) as partial:
        numpy_format.save_file(contiguous, partial, metadata={"fm2": json.dumps(values)})


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read what :func:`save_arrays` wrote."""
    safetensors = needs("safetensors", "train", "reading a model")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            values = json.loads((file.metadata() or {})["fm2"])
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118
    except FileNotFoundError as missing:
        raise Fm2Error(f"there is no {path}") from missing
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as wrong:
        raise Fm2Error(f"{path} is damaged, or not a file of fm2's: {wrong}") from wrong
