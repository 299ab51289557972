"""Comparing run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fm2.artifacts.arrays import Arrays, open_arrays


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read all arrays and values of a file that ``save_arrays`` wrote."""
    with open_arrays(path) as (arrays, values):
        return dict(arrays), values


def compare_runs(expected: Path, actual: Path) -> None:
    """Assert that two runs have the same model, checkpoint and history, bit for bit."""
    for name in ("model.safetensors", "checkpoint.safetensors"):
        expected_arrays, expected_values = load_arrays(expected / name)
        actual_arrays, actual_values = load_arrays(actual / name)
        assert actual_values == expected_values
        assert actual_arrays.keys() == expected_arrays.keys()
        for key, array in expected_arrays.items():
            np.testing.assert_array_equal(actual_arrays[key], array, err_msg=key)
    assert (actual / "history.jsonl").read_text() == (expected / "history.jsonl").read_text()
