"""Comparing the files of two runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fm2.artifacts.arrays import load_arrays


def compare_runs(one: Path, other: Path) -> None:
    """Assert that two runs have the same model, checkpoint and history, bit for bit."""
    for name in ("model.safetensors", "checkpoint.safetensors"):
        (arrays, values), (other_arrays, other_values) = load_arrays(one / name), load_arrays(other / name)
        assert values == other_values
        assert arrays.keys() == other_arrays.keys()
        for key in arrays:
            np.testing.assert_array_equal(arrays[key], other_arrays[key], err_msg=key)
    assert (one / "history.jsonl").read_text() == (other / "history.jsonl").read_text()
