"""Each model's own defaults, found by ``benchmarks/quality.py`` on validation data."""

from __future__ import annotations

from typing import Any

_FAMILY: dict[str, Any] = {
    "dim": 4,
    "optimiser": "adam",
    "learning_rate": 0.002,
    "dense_rate": 0.002,
    "batch_size": 256,
    "epochs": 4,
    "l2": 0.1,
    "l2_power": 0.5,
    "dropout": 0.5,
    "field_dropout": 0.1,
    "average": 0.998,
}

DEFAULTS: dict[str, dict[str, Any]] = {
    "lr": {"optimiser": "adagrad", "learning_rate": 0.05, "batch_size": 256, "l2": 1e-5, "average": 0.998},
    "poly2": {"optimiser": "adagrad", "learning_rate": 0.02, "batch_size": 64, "l2": 1e-5},
    "fm": {**_FAMILY},
    "ffm": {"dim": 4, "optimiser": "adagrad", "learning_rate": 0.1, "batch_size": 32, "l2": 2e-5},
    "fwfm": {**_FAMILY},
    "fvfm": {**_FAMILY},
    "fmfm": {**_FAMILY},
}
