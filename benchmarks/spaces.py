"""What the search for defaults tries: for each model one or several sets of choices."""

from __future__ import annotations

from typing import Any

import numpy as np

Space = dict[str, list[Any]]

FAMILY: Space = {
    "dim": [2, 4, 8, 16],
    "linear": ["fields", "features", "both"],
    "learning_rate": [0.001, 0.002, 0.004, 0.008],
    "dense_rate": [0.001, 0.002, 0.004, 0.008],
    "batch_size": [128, 256, 512],
    "l2": [0.01, 0.03, 0.05, 0.1, 0.3],
    "dropout": [0.0, 0.1, 0.2],
    "field_dropout": [0.0, 0.1, 0.2, 0.3],
    "average": [0.99, 0.998, 0.999],
    "embedding_scale": [0.03, 0.05, 0.1, 0.2],
}
# A row moves all its pairs at once, 741 of them with 39 fields: small steps are enough.
POLY2: Space = {"learning_rate": [0.0003, 0.001, 0.003, 0.01]}

SPACES: dict[str, list[Space]] = {
    "lr": [
        {
            "learning_rate": [0.001, 0.002, 0.003, 0.005, 0.01],
            "batch_size": [128, 256, 512],
            "l2": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
            "average": [0.99, 0.998, 0.9995],
        }
    ],
    "poly2": [
        {"optimiser": ["adagrad"], "initial_squares": [0.01, 0.1, 1.0], "l2": [0.0, 1e-3, 1e-2, 0.1], **POLY2},
        {"optimiser": ["ftrl"], "l1": [0.0, 0.1, 0.5, 1.0], "l2": [0.0, 10.0, 100.0], **POLY2},
    ],
    "fm": [{**FAMILY, "matrix_scale": [0.01, 0.03, 0.1]}],
    "ffm": [
        {
            "dim": [2, 4, 8],
            "learning_rate": [0.005, 0.01, 0.02, 0.04],
            "initial_squares": [0.01, 0.1, 1.0],
            "l2": [1e-3, 2e-3, 3e-3, 5e-3, 1e-2],
            "embedding_scale": [0.01, 0.03, 0.06],
        }
    ],
    "fwfm": [{**FAMILY, "matrix_scale": [0.03, 0.1, 0.3, 1.0]}],
    "fvfm": [{**FAMILY, "matrix_scale": [0.03, 0.1, 0.3, 1.0]}],
    "fmfm": [{**FAMILY, "matrix_scale": [0.01, 0.03, 0.1]}],
}

# For generated logs of a million rows; all that is not here is as for the small ones.
LARGE_FAMILY: Space = {
    "schedule": ["constant", "linear"],
    "epochs": [3, 4, 6],
    "batch_size": [512, 1024, 2048],
    "learning_rate": [0.002, 0.003, 0.004, 0.006],
    "dense_rate": [0.004, 0.008, 0.016],
    "l2": [0.004, 0.0075, 0.015, 0.03],
    "field_dropout": [0.0, 0.05, 0.1],
    "average": [0.998, 0.999],
}
LARGE: dict[str, list[Space]] = {
    "lr": [
        {
            "schedule": ["constant", "linear"],
            "epochs": [3, 4, 6],
            "batch_size": [512, 1024, 2048],
            "learning_rate": [0.003, 0.006, 0.012],
            "l2": [1e-4, 2.5e-4, 1e-3],
        }
    ],
    "poly2": SPACES["poly2"],
    "ffm": [{"learning_rate": [0.01, 0.02, 0.05], "l2": [5e-4, 1e-3, 2e-3, 5e-3]}],
    **{name: [LARGE_FAMILY] for name in ("fm", "fwfm", "fvfm", "fmfm")},
}


def neighbours(spaces: list[Space], start: dict[str, Any], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw settings near some others: each of these is drawn anew with a probability of a quarter."""
    random = np.random.default_rng([seed, 1])
    space = next(space for space in spaces if start.get("optimiser") in space.get("optimiser", [None]))

    def near(name: str) -> Any:
        return space[name][random.integers(len(space[name]))] if random.random() < 0.25 else start[name]

    return [{name: near(name) for name in space} for _ in range(count)]


def draw(spaces: list[Space], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw settings at random, each choice as likely as the others."""
    random = np.random.default_rng(seed)
    picked = [spaces[random.integers(len(spaces))] for _ in range(count)]
    return [{name: choices[random.integers(len(choices))] for name, choices in space.items()} for space in picked]
