"""Small compiled models with fields of every kind, and requests to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.helpers import crosses, list_log, mixed, planted, tree_lists, trees

import fm2
from fm2 import _native
from fm2.engine.scorer import Scorer, load

LOGS: dict[str, tuple[Any, Callable[[int, int], pl.DataFrame]]] = {
    "mixed": (mixed.SCHEMA, mixed.mixed),
    "lists": (list_log.EVERYTHING_SCHEMA, list_log.everything_log),
    "crosses": (crosses.SCHEMA, crosses.log_of),
    "trees": (trees.SCHEMA, trees.log_of),
    "tree_lists": (tree_lists.SCHEMA, tree_lists.log_of),
    "planted": (planted.SCHEMA, planted.planted),
}


def make_scorer(name: str, folder: Path, model: str = "fmfm", calibrate: str | None = None, **settings: Any) -> Scorer:
    """Train a model on a small log and compile it; ``calibrate`` names a field whose values get a shift each."""
    schema, log = LOGS[name]
    dataset = fm2.prepare(log(1500, 0), schema, folder / "data")
    settings = settings or ({"dim": 4} if model in ("fm", "ffm", "fmfm") else {})
    run = fm2.train(model, dataset, folder / "run", **{**planted.QUICK, **settings})
    if calibrate:
        fm2.calibrate(run.path, dataset, by=calibrate)
    return load(fm2.compile(run.path, folder / "model.fm2").path)


def rows_of(name: str, count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return rows as JSON has them; multi-valued fields have lists, and objects of weights."""
    log = LOGS[name][1](count, seed)
    if name in ("lists", "tree_lists"):
        rows = list_log.as_python_rows(log)
        return [{key: list(value) if key in ("genres",) else value for key, value in row.items()} for row in rows]
    return log.drop("click").to_dicts()


def make_endpoint(scorer: Scorer, **options: Any) -> _native.Endpoint:
    """Return an endpoint with limits that small requests do not reach."""
    counters = options.pop("counters", np.zeros(2 * len(scorer.native.sizes), np.uint64))
    settings = {"name": "shop", "version": "3", "max_rows": 5000, "max_values": 200_000, "threads": 1, **options}
    return _native.Endpoint(scorer.native, counters, **settings)


def post(method: Callable[[bytes], _native.Reply], request: Any) -> Any:
    """Send a JSON request that must succeed; return the JSON of the response."""
    reply = method(json.dumps(request).encode())
    assert reply.status == 200, reply.body
    assert reply.reason == ""
    return json.loads(reply.body)


def error_of(reply: _native.Reply, status: int = 400) -> str:
    """Return the message of a failure with this status."""
    assert reply.status == status, reply.body
    assert reply.reason
    assert reply.header_length == 0
    return json.loads(reply.body)["error"]
