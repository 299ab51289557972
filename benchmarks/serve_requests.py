"""The model and the requests of benchmarks/serve.py: 39 columns, K = 16, rows drawn by feature frequency."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.compression.weights import Weights
from fm2.engine.compile import draw_rows
from score import CANDIDATE_FIELDS, CANDIDATES, compiled, make_weights
from serve_load import raw_request, write_requests

NAME = "model"
ROWS = 500
CATALOG = "items"
Row = dict[str, str | None]


@dataclass(frozen=True)
class Workload:
    """A model of about 400 MB, and the directories of requests of each kind."""

    model: Path
    rows: list[Row]
    catalog: dict[str, Any]
    requests: dict[str, Path]


def make_workload(folder: Path) -> Workload:
    """Write the model and the requests."""
    weights = make_weights([16] * 39)
    model = folder / "models" / f"{NAME}.fm2"
    model.parent.mkdir()
    shutil.move(compiled(weights, folder).path, model)
    ids = draw_rows(weights, ROWS + CANDIDATES).ids
    rows = [to_row(weights, row) for row in ids]
    items = [{"id": f"item{n}", **candidate(row)} for n, row in enumerate(rows[ROWS:])]
    catalog = {"candidate": list(candidate(rows[0])), "items": items}
    rows = rows[:ROWS]
    makers: dict[str, Callable[[int], bytes]] = {
        "hello": lambda _: raw_request("/"),
        "read": lambda n: raw_request("/read", predict_body(rows[n])),
        "predict": lambda n: post("v1", "predict", predict_body(rows[n])),
        "columns": lambda n: post("v2", "infer", infer_body(rows[n])),
        "binary ids": lambda n: binary(ids_tensor(ids[n])),
        "binary columns": lambda n: binary(*column_tensors(rows[n])),
        "rank": lambda n: post("v1", "rank", rank_body(rows[n])),
    }
    requests = {
        name: write_requests(folder / "requests" / name.replace(" ", "-"), [make(row) for row in range(ROWS)])
        for name, make in makers.items()
    }
    return Workload(model, rows, catalog, requests)


def to_row(weights: Weights, ids: NDArray[np.int32]) -> Row:
    """Return the values of a row."""
    fields = zip(weights.schema.fields, weights.vocabularies, ids, strict=True)
    return {field.name: vocabulary.value(int(id)) for field, vocabulary, id in fields}


def candidate(row: Row) -> Row:
    """Return the columns of a candidate."""
    return dict(list(row.items())[-CANDIDATE_FIELDS:])


def predict_body(row: Row) -> bytes:
    """Return the body of a request to ``/v1/models/{model}/predict``."""
    return compact({"rows": [row]})


def infer_body(row: Row) -> bytes:
    """Return a request of the Open Inference Protocol with one tensor per column."""
    inputs = [{"name": name, "shape": [1], "datatype": "BYTES", "data": [value]} for name, value in row.items()]
    return compact({"inputs": inputs})


def rank_body(row: Row) -> bytes:
    """Return a request that ranks the catalog."""
    context = dict(list(row.items())[:-CANDIDATE_FIELDS])
    return compact({"context": context, "catalog": CATALOG, "top": 10})


def ids_tensor(ids: NDArray[np.int32]) -> tuple[dict[str, Any], bytes]:
    """Return a tensor of ids and its data."""
    data = ids.astype("<i4").tobytes()
    return {"name": "ids", "shape": [1, len(ids)], "datatype": "INT32"}, data


def column_tensors(row: Row) -> list[tuple[dict[str, Any], bytes]]:
    """Return a tensor of strings for each column."""
    tensors = []
    for name, value in row.items():
        text = (value or "").encode()
        tensors.append(({"name": name, "shape": [1], "datatype": "BYTES"}, len(text).to_bytes(4, "little") + text))
    return tensors


def binary(*tensors: tuple[dict[str, Any], bytes]) -> bytes:
    """Return a request with binary tensors that asks for a binary answer."""
    inputs = [{**tensor, "parameters": {"binary_data_size": len(data)}} for tensor, data in tensors]
    head = compact({"inputs": inputs, "parameters": {"binary_data_output": True}})
    body = head + b"".join(data for _, data in tensors)
    headers = {"Inference_Header_Content_Length": str(len(head)), "Content_Type": "application/octet-stream"}
    return raw_request(f"/v2/models/{NAME}/infer", body, **headers)


def post(api: str, call: str, body: bytes) -> bytes:
    """Return a request with a JSON body."""
    return raw_request(f"/{api}/models/{NAME}/{call}", body, Content_Type="application/json")


def compact(value: Any) -> bytes:
    """Return JSON without spaces, as most clients send it."""
    return json.dumps(value, separators=(",", ":")).encode()
