"""Fifty steps of many models, by one process or by several workers, on the same small batches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.lists import random_rows

from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows
from fm2.models.registry import get_spec
from fm2.training.backend import Backend
from fm2.training.construction import make_backend, make_model
from fm2.training.hidden import Hidden
from fm2.training.scorer import torch_threads

SIZES = [40, 9, 40, 7, 3]
OWNERS = [0, 1, 0, 3, 4]
STEPS, BATCH = 50, 33
LISTS = random_rows(SIZES, [1, 2], 400, longest=8)
PLAIN = random_rows(SIZES, [], 400)
LABELS = np.random.default_rng(1).integers(0, 2, 400).astype(np.float32)
WEIGHTS = np.random.default_rng(3).choice([0.5, 1.0, 2.0], 400).astype(np.float32)
COUNTS = [np.random.default_rng(field).integers(0, 50, size) for field, size in enumerate(SIZES)]
AGAIN = " again"  # ends the name of a case that is repeated
GLOO = " gloo"  # ends the name of a case that is repeated without shared memory, as on several machines
MODELS = ["lr", "fm", "fwfm", "fvfm", "fmfm", "deepfm", "xdeepfm"]

# Models with all kinds of rows, dropout, averages, optimizers, a dimension per field, and both linear parts.
CASES: dict[str, dict[str, Any]] = {
    **{name: {"model": name} for name in MODELS},
    **{f"{name} lists": {"model": name, "lists": True} for name in MODELS},
    **{f"{name} shared": {"model": name, "lists": True, "owners": OWNERS} for name in MODELS if name != "lr"},
    "dims": {"model": "fmfm", "dim": [4, 2, 4, 3, 5], "linear": "both", "dropout": 0.2, "owners": OWNERS},
    "dropout": {"model": "deepfm", "lists": True, "field_dropout": 0.2, "dropout": 0.1, "network_dropout": 0.3},
    "value dropout": {"model": "fm", "lists": True, "value_dropout": 0.3, "field_dropout": 0.1},
    "adagrad": {"model": "fm", "optimizer": "adagrad", "initial_accumulator": 0.1, "ema_decay": 0.0},
    "weights": {"model": "fmfm", "lists": True, "weighted": True, "l2": 0.02, "l2_power": 0.7},
    "hidden": {"model": "fmfm", "hides": True, "field_dropout": 0.1},
}


def hidden_of(hides: bool) -> Hidden:
    """Return the probabilities of hiding the features of two fields, as if another one combined them."""
    probabilities = {field: np.full(SIZES[field], 20_000, np.uint16) for field in (0, 3)}
    return Hidden(probabilities, {4: [0, 3]}) if hides else Hidden()


def settings_for(model: str, **changes: Any) -> Settings:
    usual: dict[str, Any] = {"l2": 0.01, "l2_power": 0.5, "ema_decay": 0.9, "optimizer": "adam", "learning_rate": 0.01}
    if model != "lr":
        usual |= {"dim": 4, "embedding_std": 0.3, "field_dropout": 0.0}
    if "hidden" in get_spec(model).option_names:
        usual["hidden"] = (16, 8)
    return Settings.of(model, **{**usual, "threads": 1, **changes})


def take_steps(backend: Backend, lists: bool, weighted: bool, until: int = STEPS) -> list[float]:
    """Take steps on random rows, announcing most of them; return the losses."""
    rows: EncodedRows = LISTS if lists else PLAIN
    random = np.random.default_rng(5)
    orders = [random.integers(0, 400, BATCH if step % 7 else 1) for step in range(until)]
    losses = []
    for step, order in enumerate(orders):
        known = step + 1 < len(orders) and step % 11 != 3
        backend.announce(rows, orders[step + 1] if known else None)
        weights = WEIGHTS[order] if weighted else None
        losses.append(backend.step(rows, order, LABELS[order], weights, rate=1 - step / 100))
    return losses


def single(
    model: str, lists: bool = False, owners: Any = (), weighted: bool = False, hides: bool = False, **changes: Any
) -> dict[str, Any]:
    """Return the losses, weights and logits of a single process."""
    settings = settings_for(model, **changes)
    counts = np.concatenate(COUNTS)
    hidden = hidden_of(hides)
    backend = make_backend(make_model(settings, SIZES, owners=owners), settings, counts, hidden=hidden)
    with torch_threads(1):
        losses = take_steps(backend, lists, weighted)
        return {"losses": np.array(losses), "logits": backend.score(LISTS if lists else PLAIN), **backend.weights()}


def several(
    workers: Any,
    model: str,
    lists: bool = False,
    owners: Any = (),
    weighted: bool = False,
    hides: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    """Return the losses, weights and logits of several workers; the weights on the first one only."""
    from fm2.distributed.construction import shard_backend
    from fm2.distributed.streaming import TableStream

    settings = settings_for(model, **changes)
    counts = [own[workers.index :: workers.count] for own in COUNTS]
    squares = [own.astype(np.float64) for own in counts]
    with shard_backend(settings, SIZES, counts, squares, workers, owners, hidden=hidden_of(hides)) as backend:
        losses = take_steps(backend, lists, weighted)
        logits = backend.score(LISTS if lists else PLAIN)
        tables: dict[str, Any] = {}
        stream = TableStream(workers, backend.shards, backend.averages())
        stream.save(
            lambda arrays: tables.update({n: np.concatenate([*map(np.ravel, a.make())]) for n, a in arrays.items()})
        )
        return {"losses": np.array(losses), "logits": logits, **backend.dense_weights(), **tables}


def main(out: str, *names: str) -> None:
    """Write the results of some cases, as a worker."""
    from fm2.distributed.workers import joined

    with joined(60) as workers, joined(60, shares_memory=False) as others:
        for name in names:
            chosen = others if name.endswith(GLOO) else workers
            result = several(chosen, **CASES[name.removesuffix(AGAIN).removesuffix(GLOO)])
            if workers.is_first:
                np.savez(Path(out) / f"{name}.npz", **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
