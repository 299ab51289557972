"""Compare requests answered by native code with the same work in Python: orjson, then the scorer.

    python benchmarks/endpoint.py [--rows 500] [--rounds 5]

The model of benchmarks/score.py with 39 fields of texts. CPU time of this thread per call, without HTTP: the body of a
request in, the body of the response out. All are measured in turn; the best round counts. Every call has another row.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as triton

from fm2 import Scorer, _native
from fm2.engine.compile import draw_rows, exact_plans, write
from fm2.models.paper import CRITEO_DIMS
from score import make_weights
from targets import Target, print_targets
from timing import in_turn

ITEMS, CANDIDATE_FIELDS, MANY = 1000, 10, 1000
Row = dict[str, str]
Client = triton.InferenceServerClient


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=500, help="different rows, each a request")
    parser.add_argument("--rounds", type=int, default=5)
    settings = parser.parse_args()
    weights = make_weights(CRITEO_DIMS)
    with tempfile.TemporaryDirectory() as folder:
        path = write(weights, list(exact_plans(weights, "direct")), Path(folder) / "model.fm2").path
        scorer = Scorer(path, threads=1)
        ids = draw_rows(weights, max(settings.rows, ITEMS)).ids
        names = [field.name for field in weights.schema.fields]
        rows = [
            {
                name: str(vocabulary.value(int(id)))
                for name, vocabulary, id in zip(names, weights.vocabularies, row, strict=True)
            }
            for row in ids
        ]
        measure(scorer, ids, rows, settings)


def measure(scorer: Scorer, ids: Any, rows: Sequence[Row], settings: argparse.Namespace) -> None:
    """Time everything in turn; print microseconds per call and targets."""
    counters = np.zeros(2 * len(scorer.native.sizes), np.uint64)
    endpoint = _native.Endpoint(
        scorer.native, counters, name="m", version="1", max_rows=10_000, max_values=1_000_000, threads=1
    )
    few = rows[: settings.rows]
    bodies = [json.dumps({"rows": [row]}).encode() for row in few]
    tasks = {
        "predict_one of a dict": cpu_time(scorer.predict_one, few),
        "predict, one row": cpu_time(endpoint.predict, bodies),
        **orjson_tasks(scorer, bodies),
        "infer, one row, binary columns": cpu_time(infer_by(endpoint), [columns_of([row]) for row in few]),
        "infer, one row, binary ids": cpu_time(infer_by(endpoint), [ids_of(ids[i : i + 1]) for i in range(len(few))]),
        "predict, 1,000 rows": cpu_time(endpoint.predict, [json.dumps({"rows": rows[:MANY]}).encode()] * 3),
        **ranking_tasks(scorer, endpoint, ids, few),
    }
    best = {name: min(times) * 1e6 for name, times in in_turn(tasks, settings.rounds).items()}
    for name, microseconds in best.items():
        print(f"{name:<56}{microseconds:>12,.2f} µs")
    print_targets("microseconds beyond predict_one", targets(best))


def targets(best: dict[str, float]) -> list[Target]:
    """Return what a request adds to a prediction, and its ratio to the same work in Python."""
    one = best["predict_one of a dict"]
    python = best.get("orjson, predict_one, orjson")
    ranked = best["rank, 1,000 catalog items"] - best["catalog.top of ids, 1,000 items"]
    return [
        Target("predict, one row", best["predict, one row"] - one, at_most=8, goal=4),
        Target("infer, one row, binary columns", best["infer, one row, binary columns"] - one, at_most=8, goal=4),
        Target("rank, 1,000 catalog items - catalog.top", ranked, at_most=30, goal=10),
        Target("predict / orjson, times", best["predict, one row"] / python if python else None),
    ]


def cpu_time(call: Callable[[Any], Any], arguments: Sequence[Any]) -> Callable[[], float]:
    """Return a measurement: the mean CPU time of a call."""

    def run() -> float:
        start = time.thread_time()
        for argument in arguments:
            call(argument)
        return (time.thread_time() - start) / len(arguments)

    return run


def orjson_tasks(scorer: Scorer, bodies: Sequence[bytes]) -> dict[str, Callable[[], float]]:
    """Return the measurement of Python with orjson, if it is installed."""
    try:
        import orjson
    except ImportError:
        print("orjson is not measured: package 'orjson' is not installed")
        return {}

    def answer(body: bytes) -> bytes:
        rows = orjson.loads(body)["rows"]
        probabilities = [scorer.predict_one(row) for row in rows]
        return orjson.dumps({"model": "m", "version": "1", "probabilities": probabilities})

    return {"orjson, predict_one, orjson": cpu_time(answer, bodies)}


def infer_by(endpoint: _native.Endpoint) -> Callable[[Any], Any]:
    return lambda request: endpoint.infer(*request)


def columns_of(rows: Sequence[Row]) -> tuple[bytes, int]:
    """Return a binary request with a tensor per column, as the client of Triton writes it."""
    inputs = [
        triton.InferInput(name, [len(rows)], "BYTES").set_data_from_numpy(np.array([row[name] for row in rows], object))
        for name in rows[0]
    ]
    body, length = Client.generate_request_body(inputs)
    return body, length


def ids_of(ids: Any) -> tuple[bytes, int]:
    """Return a binary request with a tensor of ids."""
    given = triton.InferInput("ids", list(ids.shape), "INT32").set_data_from_numpy(np.ascontiguousarray(ids))
    body, length = Client.generate_request_body([given])
    return body, length


def ranking_tasks(
    scorer: Scorer, endpoint: _native.Endpoint, ids: Any, rows: Sequence[Row]
) -> dict[str, Callable[[], float]]:
    """Return measurements of the best 10 of 1,000 catalog items: a request, and the catalog with encoded contexts."""
    context = scorer.columns[:-CANDIDATE_FIELDS]
    ranker = scorer.ranker(context=context)
    catalog = ranker.catalog(np.ascontiguousarray(ids[:ITEMS, -CANDIDATE_FIELDS:]))
    endpoint.set_catalog("ads", ranker._native, catalog.rows, catalog.shifts, [str(item) for item in range(ITEMS)])
    requests = [{"context": {name: row[name] for name in context}, "catalog": "ads", "top": 10} for row in rows]
    bodies = [json.dumps(request).encode() for request in requests]
    contexts = [np.ascontiguousarray(row) for row in ids[: len(rows), :-CANDIDATE_FIELDS]]
    return {
        "rank, 1,000 catalog items": cpu_time(endpoint.rank, bodies),
        "catalog.top of ids, 1,000 items": cpu_time(lambda row: catalog.top(row, k=10), contexts),
    }


if __name__ == "__main__":
    main()
