"""What the tests of networks share: small ones, rows to learn by heart, and torch's own count of operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from fm2.models import DeepModel, build
from fm2.networks import NETWORKS

SIZES = [12, 9, 12, 7]
OWN_DIMS = [3, 1, 4, 2]
SMALL = {"hidden": (16, 8), "second_hidden": (12, 8)}
PAPER = {"field_sizes": [2] * 39, "dims": 16}  # the paper's n and K; its perceptrons have three layers of 200


def options(name: str, **wanted: Any) -> dict[str, Any]:
    """Give those of the wanted options that a network has."""
    return {key: value for key, value in wanted.items() if key in NETWORKS[name].option_names}


def small(name: str, seed: int | None = 0, **changes: Any) -> DeepModel:
    """Build a small network with embeddings of order 1."""
    config = {"model": name, "field_sizes": SIZES, "dims": 4, "embedding_scale": 0.5, **options(name, **SMALL)}
    model = build({**config, **changes}, seed)
    assert isinstance(model, DeepModel)
    return model


def random_rows(rows: int, sizes=SIZES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw ids and labels that have nothing to do with each other."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, sizes, (rows, len(sizes)), dtype=np.int32)
    return ids, random.integers(0, 2, rows).astype(np.float32)


def counted_flops(model: DeepModel, rows: int = 7) -> float:
    """Let torch count the operations of its matrix products, per row."""
    ids = torch.zeros(rows, len(model.field_sizes), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(ids)
    return counter.get_total_flops() / rows
